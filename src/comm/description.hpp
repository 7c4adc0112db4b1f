#pragma once
// What ranks compare before a collective: its description as fixed-size data, as text, and as a digest.

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"

namespace shardmark::comm {

/// A collective as one rank asked for it, fit to be sent.
struct Description {
  std::int64_t sequence = 0;
  std::int64_t send_count = 0;
  std::int64_t receive_count = 0;
  std::int64_t tag = 0;
  std::int32_t root = 0;
  std::int32_t world_rank = 0;  // whose it is; not compared
  Operation operation = Operation::barrier;
  Reduction reduction = Reduction::sum;
  SumOrder order = SumOrder::fast;
  Purpose purpose = Purpose::control;
  base::DType dtype = base::DType::fp32;
};

[[nodiscard]] Description describe(const Collective& collective, std::int64_t sequence, int world_rank);

/// Equal for equal descriptions; 64 bits, so that unequal ones are told apart but for about one in 10^19.
[[nodiscard]] std::uint64_t digest_of(const Description& description);

/// "all_reduce sum fast, fp32, 1024 elements, gradient, tag 3"
[[nodiscard]] std::string text_of(const Description& description);

}  // namespace shardmark::comm

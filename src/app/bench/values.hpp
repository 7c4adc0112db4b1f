#pragma once
// What benchmark buffers hold, by rank and element, and what a collective must make of it, computed without any message. Sums
// over all ranks are exact in every type and in any order of additions, so a result is right or wrong bit by bit.

#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::app::bench {

/// Values repeat after so many elements: a prime, so that no cut into pieces falls in with it.
inline constexpr std::int64_t kPeriod = 65521;

/// A row of values without end, stored as far as it is needed: element i has entry i % kPeriod.
class Values {
 public:
  Values(base::DType dtype, std::vector<std::byte> entries);

  /// Elements first, first + 1, ... into the buffer.
  void write(comm::Buffer buffer, std::int64_t first) const;
  /// Elements of the buffer that are not first, first + 1, ...
  [[nodiscard]] std::int64_t count_wrong(comm::Buffer buffer, std::int64_t first) const;

 private:
  /// Calls `piece(bytes of the buffer, entries, bytes)` for stretches without a wrap.
  template <typename Piece>
  void for_pieces(comm::Buffer buffer, std::int64_t first, const Piece& piece) const;

  base::DType dtype_;
  std::vector<std::byte> entries_;
};

/// Which values: of `salt` (a group's number, a case's), small enough that `terms` of them are added exactly.
struct ValueKind {
  base::DType dtype = base::DType::fp32;
  std::uint64_t salt = 0;
  int terms = 1;
};

/// What `rank` starts with. `count`: how many elements will be asked for, from 0.
[[nodiscard]] Values values_of(const ValueKind& kind, int rank, std::int64_t count);
/// The reduction over ranks 0 to kind.terms - 1.
[[nodiscard]] Values reduced_values(const ValueKind& kind, comm::Reduction reduction, std::int64_t count);

}  // namespace shardmark::app::bench

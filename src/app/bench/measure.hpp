#pragma once
// Runs cases on all ranks: checks, times, and brings the rows to rank 0.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/buffers.hpp"
#include "base/fault.hpp"
#include "comm/factory.hpp"
#include "record/rows.hpp"
#include "world/world.hpp"

namespace shardmark::app::bench {

/// A group of ranks that measures, and how it is called.
struct Group {
  comm::Communicator* communicator = nullptr;  // lent
  std::string name;
  std::uint64_t salt = 0;
};

class Bench {
 public:
  /// `faults` plants in phase comm: kill, stop, exit, throw and slow before the timed loop of row `step`, and bitflip. All are
  /// lent.
  Bench(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options, base::FaultPlan& faults)
      : world_(world), device_(stack.device()), backend_(stack.backend()), options_(options), faults_(faults) {}

  /// Collective over the world; every rank measures in its own group, all groups at the same time. The row on rank 0, what is
  /// of no use elsewhere.
  [[nodiscard]] record::CommRow measure(const Group& group, const Case& the_case, Memory& memory);

  /// Of all ranks and rows so far: known on rank 0.
  [[nodiscard]] std::int64_t num_wrong() const { return num_wrong_; }

 private:
  void time_calls_anywhere(const comm::Collective& collective, comm::Communicator& communicator, std::vector<double>& times_s);
  [[nodiscard]] std::int64_t run_checked(comm::Communicator& communicator, const Trial& trial, bool plants);

  world::World& world_;
  device::Device& device_;
  std::string backend_;
  const CommOptions& options_;
  base::FaultPlan& faults_;
  std::int64_t index_ = 0;  // of the row
  std::int64_t num_wrong_ = 0;
};

/// A row but for what is measured.
[[nodiscard]] record::CommRow describe_case(const Case& the_case, comm::SumOrder order, const std::string& group,
                                            const std::string& backend, int ranks);
/// Fills in what follows from the times of the slowest rank.
void add_times(record::CommRow& row, comm::Operation operation, const std::vector<double>& times_s);

}  // namespace shardmark::app::bench

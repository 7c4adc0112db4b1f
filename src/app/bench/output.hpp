#pragma once
// Where rows of `shardmark comm` go, on rank 0: to the terminal, and to the file of -o.

#include <optional>
#include <string>

#include "app/bench/options.hpp"
#include "app/bench/outcome.hpp"
#include "app/bench/report.hpp"
#include "app/run_device.hpp"
#include "base/fault.hpp"
#include "record/writer.hpp"
#include "world/world.hpp"

namespace shardmark::app::bench {

class Output {
 public:
  /// Collective: with -o, all ranks' facts go to the record, and all ranks throw or none. `faults` is lent.
  Output(world::World& world, const CommOptions& options, base::FaultPlan& faults, const RunDevice& device,
         const std::string& backend);

  /// On rank 0 alone.
  void add(const record::CommRow& row);
  /// The record of -o on rank 0, while it is open; else nullptr.
  [[nodiscard]] record::RecordWriter* writer() { return writer_ ? &*writer_ : nullptr; }
  /// On rank 0 alone: the verdict, after the file is whole.
  void finish(const Outcome& outcome);
  /// After a failure: what is there, with its reason. Does not communicate or throw.
  void close_failed(base::ExitCode code, const std::string& error) noexcept;

 private:
  void close(base::ExitCode code, const std::string& error);

  Report report_;
  std::optional<record::RecordWriter> writer_;
};

}  // namespace shardmark::app::bench

#include "app/bench/faults.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::app::bench {

base::FaultPlan faults_of_comm() {
  auto faults = base::FaultPlan::from_environment();
  if (faults.text().empty()) {
    return faults;
  }
  const auto fault = base::parse_fault(faults.text());
  const bool planted = fault.phase == base::FaultPhase::record ||
                       (fault.phase == base::FaultPhase::comm && fault.kind != base::FaultKind::mismatch);
  if (!planted) {
    throw base::ConfigError(
        fmt::format("SHARDMARK_FAULT = \"{}\": `shardmark comm` plants bitflip, kill, stop, exit, throw and "
                    "slow in phase comm, and what a record's writer plants in phase record",
                    faults.text()));
  }
  if (fault.kind == base::FaultKind::bitflip &&
      !std::ranges::all_of(fault.value, [](char c) { return c >= '0' && c <= '9'; })) {
    throw base::ConfigError(
        fmt::format("SHARDMARK_FAULT = \"{}\": a bit is flipped in the received element of a number from 0 up", faults.text()));
  }
  return faults;
}

void require_place_of_fault(const base::FaultPlan& faults, int ranks, std::size_t rows) {
  if (faults.text().empty()) {
    return;
  }
  const auto fault = base::parse_fault(faults.text());
  if (fault.world_rank >= ranks) {
    throw base::ConfigError(fmt::format("SHARDMARK_FAULT = \"{}\": the last of the ranks is {}", faults.text(), ranks - 1));
  }
  if (fault.phase == base::FaultPhase::comm && fault.step >= static_cast<std::int64_t>(rows)) {
    throw base::ConfigError(fmt::format("SHARDMARK_FAULT = \"{}\": its step is a row here, and the last of the rows is {}",
                                        faults.text(), rows - 1));
  }
}

}  // namespace shardmark::app::bench

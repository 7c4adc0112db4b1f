#include "app/run_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "app/gather_rows.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "world/clock_offset.hpp"

namespace shardmark::app {
namespace {

// Other ranks end the job two seconds after a failure: rank 0 must have closed the record by then, on a slow disk too.
constexpr std::size_t kMostAfterFailure = 50'000;

}  // namespace

RunTrace::RunTrace(world::World& world, comm::CommunicatorStack& communication) : world_(world), communication_(communication) {
  world_.collectively("the memory of output.trace", [&] { events_ = std::make_unique<base::Trace>(); });
  const auto [offset_s, uncertainty_s] = world::measure_clock_offset(world_);
  // Rank 0 reads its clock before any rank can go on: no event comes earlier.
  const double now_s = base::now_s();
  const auto origin = world_.broadcast(std::as_bytes(std::span(&now_s, 1)));
  clock_ = {offset_s, uncertainty_s, 0};
  std::memcpy(&clock_.origin_s, origin.data(), sizeof clock_.origin_s);
  communication_.counts().set_trace(events_.get());
}

RunTrace::~RunTrace() {
  communication_.counts().set_trace(nullptr);
}

void RunTrace::write(record::RecordWriter* writer) {
  communication_.counts().set_trace(nullptr);
  const auto events = metrics::trace_rows(world_.rank(), *events_, clock_);
  const std::vector about{metrics::trace_rank_row(world_.rank(), *events_, clock_)};
  for (int rank = 0; rank < world_.size(); ++rank) {
    const bool mine = rank == world_.rank();
    const auto rows = gather_rows(world_, mine ? events : std::vector<record::TraceRow>{});
    const auto of_rank = gather_rows(world_, mine ? about : std::vector<record::TraceRankRow>{});
    ++ranks_written_;
    if (writer == nullptr) {
      continue;
    }
    writer->append_trace(rows);
    writer->append_trace_ranks(of_rank);
    const auto& [of, num_events, num_dropped, offset_s, uncertainty_s] = of_rank.at(0);
    if (num_dropped > 0) {
      base::log_warning(fmt::format(
          "output.trace: rank {} kept its first {} events and dropped the {} after them: trace fewer steps (measure.steps, "
          "measure.blocks)",
          of, num_events, num_dropped));
    }
  }
}

void RunTrace::write_own(record::RecordWriter& writer) {
  if (ranks_written_ == 0) {
    ++ranks_written_;
    const auto rows = metrics::trace_rows(world_.rank(), *events_, clock_);
    const std::span<const record::TraceRow> latest = std::span(rows).last(std::min(rows.size(), kMostAfterFailure));
    auto about = metrics::trace_rank_row(world_.rank(), *events_, clock_);
    about.num_events = static_cast<std::int64_t>(latest.size());
    about.num_dropped += static_cast<std::int64_t>(rows.size() - latest.size());
    writer.append_trace(latest);
    writer.append_trace_ranks(std::span(&about, 1));
    if (about.num_dropped > 0) {
      base::log_warning(
          fmt::format("output.trace: of rank 0's events {} are kept and {} dropped", about.num_events, about.num_dropped));
    }
  }
  if (ranks_written_ < world_.size()) {
    base::log_warning(
        fmt::format("output.trace: the run failed, so the record has the events of {} of {} ranks, from rank 0 on",
                    ranks_written_, world_.size()));
  }
}

}  // namespace shardmark::app

#include "analysis/trace_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "base/error.hpp"

namespace shardmark::analysis {
namespace {

using record::Record;
using record::TraceRow;

constexpr std::int64_t kComputeThread = 1;
constexpr std::int64_t kCommunicationThread = 2;
// Two times of a rank are off by the rounding of a double near the host's uptime (2e-9 s at half a year) and of this
// conversion: by so much an event may reach out of the one around it.
constexpr std::int64_t kRounding_ns = 8;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds as the format has them, exact to the nanosecond.
std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

/// Of one rank, in the order of the record.
struct Event {
  const TraceRow* row = nullptr;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t thread = kComputeThread;
};

using RankEvents = std::map<std::int64_t, std::vector<Event>>;

bool is_communication(const TraceRow& row) {
  return row.lane.str() == "communication";
}

RankEvents events_by_rank(const Record& record) {
  double earliest_s = 0;  // between hosts a start may come out below 0, by the uncertainty of the clocks
  for (const auto& row : record.trace) {
    earliest_s = std::min(earliest_s, row.start_s);
  }
  RankEvents ranks;
  for (const auto& row : record.trace) {
    const double start_s = row.start_s - earliest_s;
    const double end_s = std::isnan(row.duration_s) ? start_s : start_s + row.duration_s;
    ranks[row.rank].push_back({&row, nanoseconds(start_s), nanoseconds(end_s)});
  }
  for (auto& [rank, events] : ranks) {
    std::ranges::stable_sort(events, {}, &Event::start_ns);
    std::int64_t latest_ns = 0;
    for (const auto& event : events) {
      latest_ns = std::max(latest_ns, event.end_ns);
    }
    for (auto& event : events) {
      if (std::isnan(event.row->duration_s)) {
        event.end_ns = latest_ns;
      }
    }
  }
  return ranks;
}

/// Takes back what rounding let reach out of an enclosing event.
void nest(std::vector<Event>& events) {
  std::vector<std::int64_t> ends;
  for (auto& event : events) {
    if (is_communication(*event.row)) {
      continue;
    }
    while (!ends.empty() && ends.back() <= event.start_ns) {
      ends.pop_back();
    }
    if (!ends.empty() && event.end_ns > ends.back() && event.end_ns - ends.back() <= kRounding_ns) {
      event.end_ns = ends.back();
    }
    ends.push_back(event.end_ns);
  }
}

/// Gives each collective the first thread that is free. The number of threads, at least one.
std::int64_t spread(std::vector<Event>& events) {
  std::vector<std::int64_t> free_from{0};
  for (auto& event : events) {
    if (!is_communication(*event.row)) {
      continue;
    }
    auto found = std::ranges::find_if(free_from, [&](std::int64_t from_ns) { return from_ns <= event.start_ns; });
    if (found == free_from.end()) {
      found = free_from.insert(found, 0);
    }
    *found = event.end_ns;
    event.thread = kCommunicationThread + (found - free_from.begin());
  }
  return static_cast<std::int64_t>(free_from.size());
}

/// Process 0 is the idle process to viewers, which rename and hide it.
std::int64_t process_of(std::int64_t rank) {
  return rank + 1;
}

class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}

  void metadata(const char* name, std::int64_t rank, std::int64_t thread, const std::string& argument) {
    line(fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{{}}}}})", name, process_of(rank), thread,
                     argument));
  }

  void event(const Event& event) {
    const auto& row = *event.row;
    line(fmt::format(R"({{"ph": "X", "name": {}, "cat": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
                     quoted(row.name.str()), quoted(row.category.str()), process_of(row.rank), event.thread,
                     microseconds(event.start_ns), microseconds(event.end_ns - event.start_ns), arguments(row)));
  }

 private:
  static std::string arguments(const TraceRow& row) {
    std::string text = fmt::format(R"("step": {})", row.step);
    const auto whole = [&](const char* name, std::int64_t value) {
      if (value >= 0) {
        text += fmt::format(R"(, "{}": {})", name, value);
      }
    };
    const auto word = [&](const char* name, const std::string& value) {
      if (!value.empty()) {
        text += fmt::format(R"(, "{}": {})", name, quoted(value));
      }
    };
    word("purpose", row.purpose.str());
    word("group", row.group.str());
    word("dtype", row.dtype.str());
    whole("bytes", row.bytes);
    if (row.sequence >= 0) {
      whole("tag", row.tag);
    }
    whole("sequence", row.sequence);
    if (std::isnan(row.duration_s)) {
      text += R"(, "unfinished": true)";
    }
    return text;
  }

  void line(const std::string& text) {
    out_ << (first_ ? "\n  " : ",\n  ") << text;
    first_ = false;
  }

  std::ostream& out_;
  bool first_ = true;
};

std::string host_of(const Record& record, std::int64_t rank) {
  const auto found = std::ranges::find(record.ranks, rank, &record::RankRow::rank);
  return found == record.ranks.end() || found->host.str().empty() ? "" : " on " + found->host.str();
}

void write_rank(Writer& writer, const Record& record, std::int64_t rank, std::vector<Event>& events) {
  nest(events);
  const std::int64_t num_threads = spread(events);
  writer.metadata("process_name", rank, kComputeThread,
                  fmt::format(R"("name": {})", quoted(fmt::format("rank {}{}", rank, host_of(record, rank)))));
  writer.metadata("process_sort_index", rank, kComputeThread, fmt::format(R"("sort_index": {})", rank));
  const auto name_thread = [&](std::int64_t thread, const std::string& name) {
    writer.metadata("thread_name", rank, thread, fmt::format(R"("name": "{}")", name));
    writer.metadata("thread_sort_index", rank, thread, fmt::format(R"("sort_index": {})", thread));
  };
  name_thread(kComputeThread, "compute");
  for (std::int64_t i = 0; i < num_threads; ++i) {
    name_thread(kCommunicationThread + i, i == 0 ? "communication" : fmt::format("communication {}", i + 1));
  }
  for (const auto& event : events) {
    writer.event(event);
  }
}

bool was_asked_for(const Record& record) {
  return std::ranges::any_of(record.config_keys,
                             [](const auto& row) { return row.key.str() == "output.trace" && row.value.str() == "true"; });
}

}  // namespace

void require_trace(const Record& record) {
  if (record.trace.empty()) {
    throw base::ConfigError(
        was_asked_for(record)
            ? fmt::format(
                  "record {}: the run had output.trace=true, but ended ({}) before its events were written, at its end: "
                  "there is no trace",
                  record.path, record.attributes.status)
            : fmt::format("record {}: has no trace: run again with --set output.trace=true", record.path));
  }
}

void write_chrome_trace(std::ostream& out, const Record& record) {
  const auto& a = record.attributes;
  out << R"({"displayTimeUnit": "ms", "otherData": {)"
      << fmt::format(R"("preset": {}, "technique": {}, "world_size": {}, "run_id": {}, "status": {})", quoted(a.preset),
                     quoted(a.technique), a.world_size, quoted(a.run_id), quoted(a.status))
      << R"(}, "traceEvents": [)";
  Writer writer(out);
  for (auto& [rank, events] : events_by_rank(record)) {
    write_rank(writer, record, rank, events);
  }
  out << "\n]}\n";
}

std::vector<std::string> trace_warnings(const Record& record) {
  std::vector<std::string> warnings;
  if (const auto known = static_cast<std::int64_t>(record.trace_ranks.size()); known < record.attributes.world_size) {
    warnings.push_back(
        fmt::format("the trace has {} of {} ranks: status {}", known, record.attributes.world_size, record.attributes.status));
  }
  double worst_s = 0;
  for (const auto& row : record.trace_ranks) {
    if (row.num_dropped > 0) {
      warnings.push_back(fmt::format("rank {}: {} events were kept and {} dropped", row.rank, row.num_events, row.num_dropped));
    }
    worst_s = std::max(worst_s, row.clock_uncertainty_s);
  }
  if (worst_s > 0) {
    warnings.push_back(fmt::format("times of different hosts compare to within {:.3g} us only", worst_s * 1e6));
  }
  return warnings;
}

}  // namespace shardmark::analysis

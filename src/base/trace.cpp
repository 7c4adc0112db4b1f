#include "base/trace.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace shardmark::base {

std::string_view name_of(TraceKind kind) {
  switch (kind) {
    case TraceKind::step: return "step";
    case TraceKind::phase: return "phase";
    case TraceKind::unit: return "unit";
    case TraceKind::wait: return "wait";
    case TraceKind::collective: return "collective";
  }
  return "?";
}

Trace::Trace(std::size_t max_bytes) : events_(max_bytes / sizeof(TraceEvent)) {
  static_cast<void>(intern(""));
}

TraceName Trace::intern(std::string_view text) {
  const auto found = names_.find(std::string(text));
  if (found != names_.end()) {
    return found->second;
  }
  SM_CHECK(texts_.size() < static_cast<std::size_t>(std::numeric_limits<TraceName>::max()), "a trace has too many names");
  const auto name = static_cast<TraceName>(texts_.size());
  texts_.emplace_back(text);
  names_.emplace(text, name);
  return name;
}

std::vector<TraceEvent> Trace::sorted_events() const {
  std::vector<TraceEvent> sorted(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(num_events_));
  const auto end_of = [](const TraceEvent& event) {
    return std::isnan(event.end_s) ? std::numeric_limits<double>::infinity() : event.end_s;
  };
  std::ranges::stable_sort(sorted, [&](const TraceEvent& a, const TraceEvent& b) {
    if (a.start_s != b.start_s) {
      return a.start_s < b.start_s;
    }
    return end_of(a) != end_of(b) ? end_of(a) > end_of(b) : a.kind < b.kind;
  });
  return sorted;
}

}  // namespace shardmark::base

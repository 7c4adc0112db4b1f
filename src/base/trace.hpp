#pragma once
// Events of one rank over time, for a trace of a run: what its thread computes and waits for, and the collectives under way.
// All memory is taken at once and names are interned, so that an event in the steady state allocates nothing. Knows nothing of
// ranks, of records or of the file formats that show a trace. One thread at a time uses a Trace.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shardmark::base {

/// What an event is. At equal times the earlier kinds enclose the later ones. All but `collective` are of the rank's thread
/// and nest; collectives overlap everything.
enum class TraceKind : std::uint8_t { step, phase, unit, wait, collective };
[[nodiscard]] std::string_view name_of(TraceKind kind);

/// Index of an interned text.
using TraceName = std::int16_t;

struct TraceEvent {
  double start_s = 0;                                       // by base::now_s()
  double end_s = std::numeric_limits<double>::quiet_NaN();  // NaN: not over
  std::int64_t bytes = -1;
  std::int64_t tag = -1;
  std::int64_t sequence = -1;  // of a collective among the rank's collectives, from 0; of a wait, that of what it waited for
  std::int32_t step = -1;      // -1 outside steps; the trace fills it
  TraceName name = 0;
  TraceName purpose = 0;
  TraceName group = 0;
  TraceName dtype = 0;
  TraceKind kind = TraceKind::phase;
};

class Trace {
 public:
  /// Memory of a rank's events: about 600,000. Later ones are counted and dropped.
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20U;

  /// Takes `max_bytes` for events, written to once so that no page comes in later.
  explicit Trace(std::size_t max_bytes = kMaxBytes);

  /// Equal texts get equal names; "" is name 0. Allocates for a new text. Throws InvariantError past 32767 texts.
  [[nodiscard]] TraceName intern(std::string_view text);
  [[nodiscard]] const std::string& text_of(TraceName name) const { return texts_[static_cast<std::size_t>(name)]; }

  /// Events that begin from here on belong to this step; -1: to none.
  void set_step(std::int64_t step) { step_ = static_cast<std::int32_t>(step); }

  /// Begins an event, or adds a whole one whose end_s is set. Its index, or -1 if it was dropped.
  std::int64_t add(TraceEvent event) {
    if (num_events_ == events_.size()) [[unlikely]] {
      ++num_dropped_;
      return -1;
    }
    event.step = step_;
    events_[num_events_] = event;
    return static_cast<std::int64_t>(num_events_++);
  }
  /// As add for what has a name and no more.
  std::int64_t add(TraceKind kind, TraceName name, double start_s, double end_s = std::numeric_limits<double>::quiet_NaN()) {
    TraceEvent event;
    event.start_s = start_s;
    event.end_s = end_s;
    event.name = name;
    event.kind = kind;
    return add(event);
  }
  /// Ends what add began; nothing to do for -1.
  void end(std::int64_t index, double end_s) {
    if (index >= 0) {
      events_[static_cast<std::size_t>(index)].end_s = end_s;
    }
  }
  [[nodiscard]] const TraceEvent& event(std::int64_t index) const { return events_[static_cast<std::size_t>(index)]; }

  [[nodiscard]] std::int64_t num_events() const { return static_cast<std::int64_t>(num_events_); }
  [[nodiscard]] std::int64_t num_dropped() const { return num_dropped_; }
  /// Copies, by start; of those that start together, what encloses comes first.
  [[nodiscard]] std::vector<TraceEvent> sorted_events() const;

 private:
  std::vector<TraceEvent> events_;
  std::size_t num_events_ = 0;
  std::int64_t num_dropped_ = 0;
  std::int32_t step_ = -1;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, TraceName> names_;
};

}  // namespace shardmark::base

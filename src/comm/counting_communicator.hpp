#pragma once
// A decorator that counts and times every collective, for the record, for a trace and for tests that hold a run to its plan.
// Its stats are plain structs of its own: it knows nothing of records.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/collective_trace.hpp"
#include "comm/communicator.hpp"
#include "comm/ring.hpp"

namespace shardmark::comm {

/// One row per distinct (operation, purpose, group, dtype, message_bytes).
struct CollectiveStats {
  Operation operation = Operation::barrier;
  Purpose purpose = Purpose::control;
  std::string group;
  base::DType dtype = base::DType::fp32;
  std::int64_t message_bytes = 0;  // of the whole padded buffer
  std::int64_t count = 0;          // collectives started
  double wire_bytes = 0;           // nominal, of all `count` calls: wire_bytes()
  // Of collectives that run without the host it knows no times: NaN, all five.
  double total_s = 0;    // from start to completion as the caller could see it
  double exposed_s = 0;  // the caller's thread inside the communicator: start, progress, test and wait
  double min_s = 0;      // of the single total times; NaN if none completed while counting
  double median_s = 0;   // exact for up to 512 calls, then of an even selection
  double max_s = 0;
  bool timed = true;
};

/// The counts of a communicator and of all that were split from it.
class CollectiveCounts {
 public:
  /// Later collectives count, or not; those in flight keep what they had.
  void set_counting(bool counting) { counting_ = counting; }
  [[nodiscard]] bool counting() const { return counting_; }
  /// Forgets everything, also of collectives in flight.
  void reset();
  [[nodiscard]] std::vector<CollectiveStats> rows() const;
  /// Seconds exposed so far, of all rows; cheap enough for every step.
  [[nodiscard]] double exposed_s() const { return exposed_s_; }

  /// The row of a collective, counted once more. -1 if not counting. `timed`: whether add_completed will follow.
  [[nodiscard]] std::int64_t count(const Collective& collective, const std::string& group, int size, bool timed = true);
  void add_exposed(std::int64_t row, double seconds);
  void add_completed(std::int64_t row, double seconds);
  /// Changes with every reset: rows of an earlier generation are gone.
  [[nodiscard]] std::int64_t generation() const { return generation_; }

  /// Collectives that start from here on, counted or not, become events of `trace`, which is lent for their life. nullptr:
  /// none.
  void set_trace(base::Trace* trace);
  [[nodiscard]] CollectiveTrace* trace() { return trace_ ? &*trace_ : nullptr; }

 private:
  struct Key {
    Operation operation;
    Purpose purpose;
    base::DType dtype;
    std::int64_t message_bytes;
    std::string group;
    bool timed;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  /// A row with its samples: when they are full, every second one goes and only every second one comes in from then on.
  struct Row {
    CollectiveStats stats;
    std::vector<double> samples;
    std::int64_t num_completed = 0;
    std::int64_t stride = 1;
  };

  std::unordered_map<Key, std::int64_t, KeyHash> index_;
  std::vector<Row> rows_;
  double exposed_s_ = 0;
  std::int64_t generation_ = 0;
  bool counting_ = true;
  std::optional<CollectiveTrace> trace_;
};

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(std::unique_ptr<Communicator> inner,
                                std::shared_ptr<CollectiveCounts> counts = std::make_shared<CollectiveCounts>());

  [[nodiscard]] CollectiveCounts& counts() { return *counts_; }
  /// What this decorates, for who times it without the decorator's cost.
  [[nodiscard]] Communicator& inner() { return *inner_; }

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override;
  [[nodiscard]] bool runs_by_itself() const override { return inner_->runs_by_itself(); }
  [[nodiscard]] bool needs_one_order() const override { return inner_->needs_one_order(); }
  void read(void* into, const void* from, std::size_t bytes) override { inner_->read(into, from, bytes); }
  void follow(device::Event& event) override { inner_->follow(event); }
  void begin_together() override { inner_->begin_together(); }
  void end_together() override { inner_->end_together(); }
  /// The group counts into the same rows.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  struct Flight {
    Ticket ticket = 0;
    std::int64_t row = -1;
    std::int64_t generation = 0;
    double started_s = 0;
    std::int64_t event = -1;  // of the trace
    bool timed = true;
  };
  /// Takes off what is complete by now; `oldest_known` is known to be.
  void land(Ticket known, double now_s);
  void expose(const Flight& flight, double seconds);
  [[nodiscard]] std::int64_t trace_start(CollectiveTrace& trace, const Collective& collective, double now_s);

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<CollectiveCounts> counts_;
  Ring<Flight> in_flight_;
  std::optional<base::TraceName> traced_group_;  // this communicator's name in the trace
};

}  // namespace shardmark::comm

#pragma once
// The training loop: one loop for every workload and technique. All ranks run it together; every decision that ends or
// changes the run is made from values that are equal on all ranks.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "base/trace.hpp"
#include "comm/factory.hpp"
#include "config/run_config.hpp"
#include "data/sampler.hpp"
#include "metrics/recorder.hpp"
#include "parallel/strategy.hpp"
#include "train/deferred_steps.hpp"
#include "train/progress.hpp"
#include "train/unit_trace.hpp"
#include "train/workload.hpp"

namespace shardmark::train {

struct TrainerParts {
  const config::RunConfig& config;
  config::BatchPlan batch;
  Workload& workload;
  parallel::Strategy& strategy;
  comm::CommunicatorStack& communication;
  metrics::Recorder& recorder;
  base::FaultPlan& faults;
  base::Trace* trace = nullptr;  // gets the events of this rank, but for collectives: CollectiveCounts::set_trace
  bool quiet = false;            // no progress
  /// Micro-steps take their rows from the end of the rank's share: another order of additions, for proofs.
  bool reverse_rows = false;
  /// Called once gradients of step 0 are reduced, before clipping, on every rank; collective calls are allowed.
  std::function<void(parallel::Strategy&)> on_first_gradients = {};
  /// Called after each step with what all ranks agree on.
  std::function<void(double loss, double grad_norm)> on_step = {};
};

/// A number that a run proves or states.
struct Check {
  std::string name;
  double expected = 0;
  double found = 0;
  double tolerance = 0;
  bool passed = false;
};

struct Outcome {
  bool stopped = false;  // on SIGUSR1, at a step edge
  std::int64_t steps_done = 0;
  std::int64_t timed_steps = 0;
  double quality = std::numeric_limits<double>::quiet_NaN();  // without held-out rows
  std::vector<Check> checks;
};

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  /// Runs warm-up and timed blocks. Collective. Throws NumericsError on all ranks alike (NaN with on_nonfinite = fail,
  /// replicas that differ); other errors may come on one rank only.
  [[nodiscard]] Outcome run();

 private:
  struct StepResult {
    double loss = 0;
    parallel::GradientSummary gradient;
    bool stop = false;
    bool applied = false;
    double lr = 0;
  };

  /// Names of what the trainer itself makes events of.
  struct TraceNames {
    explicit TraceNames(base::Trace& trace);
    base::TraceName step, data, forward, backward, gradients, optimizer, evaluation;
  };

  /// An event of the trace, if there is one.
  void trace(base::TraceKind kind, base::TraceName TraceNames::*name, double start_s, double end_s);
  void set_trace_step(std::int64_t step);
  void run_step(std::int64_t step, std::int64_t block);
  void train_micro_steps(std::int64_t step, StepTimes& times);
  [[nodiscard]] std::int64_t first_slot_of(std::int64_t micro) const;
  /// Tells the workload which rows the micro-step after this one takes.
  void announce_after(std::int64_t step, std::int64_t micro);
  void add_loss(const torch::Tensor& loss);
  void mark_deferred();
  void finish_on_host(std::int64_t step, std::int64_t block, StepTimes& times);
  void finish_deferred(std::int64_t step, std::int64_t block);
  /// Results of all deferred steps so far, and whether someone asked to stop. Collective.
  void collect_deferred();
  /// The sums of losses and of requests to stop.
  [[nodiscard]] comm::Pending start_control(std::int64_t step);
  void apply_update(std::int64_t step);
  [[nodiscard]] record::StepRow row_of(std::int64_t step, std::int64_t block) const;
  void plant_bitflip(std::int64_t step);
  void record_step(std::int64_t step, std::int64_t block, StepTimes& times);
  /// `result_` is the row's step's.
  void add_row(record::StepRow row, const StepTimes& times, double now_s);
  void check_finite(std::int64_t step);
  void end_block();
  void check_replicas(std::int64_t step);
  /// Quality after the steps done so far, between two of them or after the last. Collective.
  void evaluate();
  void check_payload();
  void check_memory();
  void add_check(std::string name, double expected, double found, double tolerance);
  [[nodiscard]] bool is_timed(std::int64_t block) const { return block >= 0; }

  TrainerParts parts_;
  comm::Communicator& communicator_;
  std::unique_ptr<DeferredSteps> deferred_;  // nullptr: results are known when a step ends
  optim::StepScalars* scalars_ = nullptr;    // of the deferred step under way
  std::vector<record::StepRow> unfinished_;  // deferred steps' rows, without results
  data::Sampler sampler_;
  Progress progress_;
  std::int64_t total_steps_;
  std::vector<std::int64_t> global_rows_;  // of the whole step
  torch::Tensor loss_scale_;               // 1 / targets of the global batch
  Work work_;
  double local_loss_ = 0;
  std::array<double, 2> control_{};  // lent to the communicator: loss, requests to stop
  double step_end_s_ = 0;
  double exposed_mark_s_ = 0;
  StepResult result_;
  Outcome outcome_;
  bool last_finite_ = true;
  double start_s_ = 0;                 // of step 0
  std::int64_t evaluated_steps_ = -1;  // steps done at the last evaluation
  parallel::Payload first_payload_;    // of the layout that step 0 runs with
  std::int64_t timed_skips_ = 0;       // timed steps without an update
  std::optional<TraceNames> trace_names_;
  std::optional<UnitTrace> unit_trace_;
};

}  // namespace shardmark::train

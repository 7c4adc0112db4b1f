#pragma once
// Plain rows of a run's record, one struct a table; record/schema.hpp describes every column. Knows nothing of who fills
// them. Missing numbers are NaN or -1. Units are in the names.

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::record {

inline constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// How many bytes of a text to keep where `max_bytes` fit: cut between characters of UTF-8. A text that is no UTF-8 there is
/// cut at `max_bytes`.
[[nodiscard]] std::size_t fitting_length(std::string_view text, std::size_t max_bytes);

/// A fixed-size, NUL-padded string column; longer text is cut between characters.
template <std::size_t Size>
struct FixedText {
  std::array<char, Size> data{};

  FixedText() = default;
  FixedText(std::string_view text) {  // NOLINT: implicit by design, rows are filled from texts
    text.copy(data.data(), fitting_length(text, Size - 1));
  }
  FixedText(const std::string& text) : FixedText(std::string_view(text)) {}  // NOLINT: as above
  FixedText(const char* text) : FixedText(std::string_view(text)) {}         // NOLINT: as above
  [[nodiscard]] std::string str() const { return {data.data(), strnlen(data.data(), Size)}; }
};

/// /steps: one row per (step, rank).
struct StepRow {
  std::int64_t block = -1;  // -1 in warm-up
  std::int64_t step = 0;
  std::int64_t rank = 0;
  std::int64_t timed = 0;
  double data_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double comm_exposed_s = 0;
  double optimizer_s = 0;
  double total_s = 0;
  double loss = kMissing;
  double grad_norm = kMissing;
  std::int64_t applied = 0;
  double lr = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t padded_tokens = 0;
  std::int64_t peak_bytes = 0;
  double energy_j = kMissing;
};

/// /memory: one row per (rank, phase, category).
struct MemoryRow {
  std::int64_t rank = 0;
  FixedText<16> phase;     // init, forward, backward, optimizer, run
  FixedText<24> category;  // parameters, gradients, optimizer_state, offloaded, gathered, buckets, activations, workspace,
                           // other, total, reserved, host, driver_used, host_rss
  std::int64_t current_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t at_run_peak_bytes = 0;
  std::int64_t predicted_bytes = -1;
};

/// /collectives: one row per distinct (rank, operation, purpose, group, dtype, message_bytes) over the timed steps.
struct CollectiveRow {
  std::int64_t rank = 0;
  FixedText<24> operation;
  FixedText<16> purpose;
  FixedText<16> group;
  FixedText<8> dtype;
  std::int64_t message_bytes = 0;  // the whole padded buffer
  std::int64_t count = 0;
  double wire_bytes = 0;  // nominal bytes of all `count` calls
  double total_s = 0;
  double exposed_s = 0;
  double min_s = kMissing;
  double median_s = kMissing;
  double max_s = kMissing;
};

/// /checks
struct CheckRow {
  FixedText<64> name;
  double expected = kMissing;
  double found = kMissing;
  double tolerance = 0;
  std::int64_t passed = 0;
};

/// /evaluations: one row per evaluation on the held-out rows.
struct EvaluationRow {
  std::int64_t steps = 0;  // done before it
  double quality = kMissing;
  double time_s = 0;  // from the start of step 0 to the end of this evaluation
  double duration_s = 0;
};

/// /ranks
struct RankRow {
  std::int64_t rank = 0;
  std::int64_t node = 0;
  std::int64_t node_rank = 0;
  FixedText<64> host;
  std::int64_t pid = 0;
  FixedText<64> device_name;
  FixedText<48> uuid;
  FixedText<24> pci;
  FixedText<64> cpu_set;
  std::int64_t numa_node = -1;
  FixedText<64> visible_devices;
};

/// /environment
struct EnvironmentRow {
  FixedText<64> name;
  FixedText<256> value;
};

/// /config_keys
struct ConfigKeyRow {
  FixedText<48> key;
  FixedText<256> value;
  FixedText<96> origin;  // default, preset NAME, file PATH, --set
};

/// /telemetry: sampled power, clock, temperature and throttling, where the machine gives them.
struct TelemetryRow {
  std::int64_t rank = 0;
  double time_s = 0;
  double power_w = kMissing;
  double clock_mhz = kMissing;
  double temperature_c = kMissing;
  std::int64_t throttle = -1;
};

/// /health: error counters before and after the run.
struct HealthRow {
  std::int64_t rank = 0;
  FixedText<48> counter;
  std::int64_t before = -1;
  std::int64_t after = -1;
};

/// /transport: the path to each peer, where known.
struct TransportRow {
  std::int64_t rank = 0;
  std::int64_t peer = 0;
  FixedText<16> path;  // SHM, TCP, P2P, IB, plugin, unknown
};

/// /trace: one row per event of a rank, by start; an event comes after those that enclose it.
struct TraceRow {
  std::int64_t rank = 0;
  FixedText<16> lane;      // compute, communication
  FixedText<16> category;  // step, phase, unit, wait; collective
  FixedText<48> name;
  FixedText<16> purpose;
  FixedText<16> group;
  FixedText<8> dtype;
  std::int64_t step = -1;
  std::int64_t tag = -1;
  std::int64_t sequence = -1;
  std::int64_t bytes = -1;
  double start_s = 0;
  double duration_s = kMissing;
};

/// /trace_ranks: one row per rank whose events are in /trace.
struct TraceRankRow {
  std::int64_t rank = 0;
  std::int64_t num_events = 0;
  std::int64_t num_dropped = 0;
  double clock_offset_s = kMissing;
  double clock_uncertainty_s = kMissing;
};

/// /comm: one row per measured case of `shardmark comm`.
struct CommRow {
  FixedText<24> operation;
  FixedText<48> group;     // world, node, across; of --pairs the nodes or ranks
  FixedText<8> backend;    // mpi, nccl, self
  std::int64_t ranks = 0;  // of a group
  FixedText<8> dtype;
  FixedText<8> reduction;
  FixedText<8> sum_order;
  std::int64_t in_place = -1;
  std::int64_t message_bytes = 0;
  std::int64_t count = 0;
  std::int64_t iterations = 0;
  double time_p50_s = kMissing;
  double time_p99_s = kMissing;
  double time_min_s = kMissing;
  double time_mean_s = kMissing;
  double algbw_gb_s = kMissing;
  double busbw_gb_s = kMissing;
  std::int64_t wrong = -1;
};

/// /summary: one row.
struct SummaryRow {
  std::int64_t parameters = 0;
  std::int64_t trainable_parameters = 0;
  std::int64_t padding_elements = 0;
  std::int64_t trainable_padding_elements = 0;
  double step_time_median_s = kMissing;
  double step_time_p95_s = kMissing;
  double step_time_cv = kMissing;
  double samples_per_s = kMissing;
  double tokens_per_s = kMissing;
  double samples_per_s_per_gpu = kMissing;
  double tokens_per_s_per_gpu = kMissing;
  double flops_per_step_model = kMissing;
  double flops_per_step_hardware = kMissing;
  double peak_flops = kMissing;
  FixedText<64> peak_source;
  double mfu = kMissing;
  std::int64_t peak_memory_bytes = -1;
  double wire_bytes_per_step = kMissing;
  double comm_exposed_fraction = kMissing;
  double energy_j_per_step = kMissing;
  double loss_first = kMissing;
  double loss_final = kMissing;
  FixedText<32> quality_name;
  double quality_value = kMissing;
  double quality_best = kMissing;
  std::int64_t quality_best_steps = -1;
  std::int64_t steps_to_target = -1;
  double time_to_target_s = kMissing;
  double throughput_low = kMissing;
  double throughput_high = kMissing;
  double init_s = kMissing;
  double first_step_s = kMissing;
  std::int64_t steps_applied = 0;
  std::int64_t steps_skipped = 0;
  double checkpoint_save_s = kMissing;
  double checkpoint_load_s = kMissing;
  std::int64_t checkpoint_bytes = -1;
  std::int64_t warmed_up = 0;
  std::int64_t steady = 0;
  std::int64_t oversubscribed = 0;
};

/// Root attributes.
struct RunAttributes {
  std::int64_t schema_version = 1;
  std::string shardmark_version;
  std::int64_t definition_version = 1;
  std::string commit;
  std::int64_t dirty = 0;
  std::string binary_hash;
  std::string created;  // UTC
  std::string status;   // interrupted, complete, stopped, failed
  std::string error;
  std::int64_t exit_code = -1;
  std::string workload;
  std::string preset;
  std::string technique;
  std::int64_t world_size = 0;
  std::string config_hash;
  std::string run_id;
  std::string suite_id;
  std::string case_id;
  std::int64_t repeat = 0;
  std::string job_id;
  std::int64_t attempt = 0;
};

/// A whole record as read back.
struct Record {
  std::string path;
  bool partial = false;  // read from FILE.h5.partial
  RunAttributes attributes;
  std::string config_toml;
  std::vector<ConfigKeyRow> config_keys;
  std::vector<RankRow> ranks;
  std::vector<EnvironmentRow> environment;
  std::vector<StepRow> steps;
  std::vector<MemoryRow> memory;
  std::vector<CollectiveRow> collectives;
  std::vector<EvaluationRow> evaluations;
  std::vector<CheckRow> checks;
  std::vector<SummaryRow> summary;  // empty or one row
  std::vector<TelemetryRow> telemetry;
  std::vector<HealthRow> health;
  std::vector<TransportRow> transport;
  std::vector<TraceRow> trace;  // empty unless output.trace
  std::vector<TraceRankRow> trace_ranks;
  std::vector<CommRow> comm;  // empty but for `shardmark comm`
};

}  // namespace shardmark::record

#include "app/run_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>

#include "app/build_info.hpp"
#include "app/gather_rows.hpp"
#include "app/in_world.hpp"
#include "app/run_device.hpp"
#include "app/run_facts.hpp"
#include "app/run_telemetry.hpp"
#include "app/run_trace.hpp"
#include "app/run_transport.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "comm/factory.hpp"
#include "config/print.hpp"
#include "device/memory_ledger.hpp"
#include "device/torch_device.hpp"
#include "metrics/recorder.hpp"
#include "metrics/rows.hpp"
#include "metrics/summary.hpp"
#include "parallel/strategy.hpp"
#include "record/writer.hpp"
#include "train/export.hpp"
#include "train/stop_request.hpp"
#include "train/strategy_options.hpp"
#include "train/trainer.hpp"
#include "workloads/table.hpp"

namespace shardmark::app {
namespace {

constexpr std::int64_t kMinWarmupSteps = 3;

class Session {
 public:
  Session(world::World& world, config::RunConfig config, base::FaultPlan& faults, double start_s)
      : world_(world), config_(std::move(config)), faults_(faults), start_s_(start_s) {}

  /// Everything that can fail on one rank before training: all ranks throw or none.
  void set_up() {
    if (config_.output.path.empty()) {
      const auto name = default_record_name(config_, world_.size());
      const auto agreed = world_.broadcast(std::as_bytes(std::span(name)));
      config_.output.path.assign(reinterpret_cast<const char*>(agreed.data()), agreed.size());
    }
    device_.emplace(world_);
    device_->set_reduction(config_.numerics.reduction);
    peak_ = device_->peak(config_.precision.compute == "bf16" ? base::DType::bf16 : base::DType::fp32);
    world_.agree("version", fmt::format("{} {}", kVersion, kCommit));
    world_.agree("configuration", fmt::format("{:016x}", config::config_hash(config_)));
    world_.agree("seed", std::to_string(config_.numerics.seed));
    if (config_.technique.shard_group.word == "node") {
      world_.agree("number of ranks on a node (technique.shard_group = \"node\")", std::to_string(world_.node_size()));
    }
    batch_ = config::resolve_batch(config_, world_.size());
    world_.collectively("the output file", [&] {
      if (world_.rank() == 0) {
        record::check_writable(config_.output.path, config_.output.overwrite);
      }
    });
    world_.collectively("the folder of checkpoint.export", [&] {
      if (world_.rank() == 0) {
        train::check_export(config_);
      }
    });
    world_.collectively("the workload and its data", [&] { workload_ = workloads::make_workload(config_); });
    communication_.emplace(comm::make_communicator(world_, device_->communicator_options(config_, &faults_)));
    workload_->set_device(device::torch_device(communication_->device()));
    if (config_.output.trace && communication_->device().asynchronous()) {
      throw base::ConfigError(
          "output.trace = true: its times are the host's, which does not wait for a CUDA device; use "
          "Nsight Systems, or train on the CPU (CUDA_VISIBLE_DEVICES=\"\")");
    }
    if (config_.output.trace) {
      trace_ = std::make_unique<RunTrace>(world_, *communication_);
    }
    world_.collectively("the checkpoint", [&] {
      const double start = base::now_s();
      initial_ = train::open_checkpoints(train::weight_folders(config_), workload_->parameters());
      load_s_ = config_.model.checkpoint.empty() ? record::kMissing : base::now_s() - start;
    });
    faults_.reach(base::FaultPhase::init, 0);
    strategy_ = parallel::make_strategy(
        config_.technique.name,
        train::strategy_options(config_, batch_, world_.node_size(), faults_, &communication_->device()),
        communication_->communicator());
    strategy_->prepare(workload_->parameters(), initial_);
    world_.collectively("the record", [&] { create_record(); });
    describe();
  }

  base::ExitCode train() {
    metrics::Recorder recorder(communication_->communicator(), writer_.get());
    train::TrainerParts parts{config_,         batch_,   *workload_, *strategy_,
                              *communication_, recorder, faults_,    trace_ ? &trace_->events() : nullptr};
    if (!config_.output.gradients.empty()) {
      parts.on_first_gradients = [this](parallel::Strategy& strategy) { write_gradients(strategy); };
    }
    train::Trainer trainer(std::move(parts));
    telemetry_.emplace(world_, device_->facts().uuid);
    recorder.set_energy_counter([this] { return telemetry_->energy_j(); });
    init_s_ = base::now_s() - start_s_;
    telemetry_->start();
    train::Outcome outcome = trainer.run();
    export_parameters();
    write_transports(outcome);
    const bool passed = std::ranges::all_of(outcome.checks, &train::Check::passed);
    write_results(outcome, recorder, passed);
    telemetry_->write(writer_.get());
    if (trace_) {
      trace_->write(writer_.get());
    }
    world_.collectively("the checks", [&] {
      if (!passed) {
        throw base::NumericsError(failed_checks(outcome));
      }
    });
    if (outcome.stopped) {
      base::log_info(fmt::format("stopped on request after {} steps; nothing was saved to resume from", outcome.steps_done));
    }
    finish(outcome.stopped ? "stopped" : "complete", outcome.stopped ? "stopped by SIGUSR1, no checkpoint" : "",
           outcome.stopped ? base::ExitCode::failed : base::ExitCode::good);
    return outcome.stopped ? base::ExitCode::failed : base::ExitCode::good;
  }

  /// Closes rank 0's record as failed, without communicating. After an input/output error it stays as it is.
  void fail(const std::exception& error, base::ExitCode code) noexcept {
    if (!writer_) {
      return;
    }
    try {
      if (dynamic_cast<const base::IoError*>(&error) == nullptr) {
        if (trace_) {
          trace_->write_own(*writer_);
        }
        if (telemetry_) {
          telemetry_->write_own(*writer_);
        }
        writer_->finish("failed", error.what(), static_cast<int>(code));
      }
    } catch (const std::exception& second) {
      base::log_error(fmt::format("the record could not be closed either: {}", second.what()));
    }
    writer_->abandon();
  }

  /// Leaves FILE.h5.partial behind as interrupted.
  void abandon() noexcept {
    if (writer_) {
      writer_->abandon();
    }
  }

 private:
  void create_record() {
    if (world_.rank() != 0) {
      return;
    }
    writer_ = std::make_unique<record::RecordWriter>(
        record::WriterOptions{config_.output.path, config_.output.overwrite, &faults_}, make_attributes(config_, world_),
        config::to_toml(config_), make_config_rows(config_));
    writer_->append_environment(
        make_environment(faults_.text(), workload_->data_source(), *device_, communication_->backend()));
  }

  void describe() {
    const auto ranks = gather_rows(world_, std::vector{make_rank_row(world_, *device_)});
    if (writer_) {
      writer_->append_ranks(ranks);
    }
    base::log_info(
        fmt::format("{}: {} parameters, {} on {} rank(s), global batch {} = {} rows x {} micro-step(s) a rank, data {}",
                    config_.preset, base::format_count(workload_->parameters().numel()), config_.technique.name, world_.size(),
                    batch_.global_batch, batch_.micro_batch, batch_.accumulation, workload_->data_source()));
    if (world_.oversubscribed()) {
      base::log_warning("more ranks than cores: the record is marked oversubscribed and will not be compared");
    }
    for (const auto& key : parallel::unused_keys(config_.technique.name)) {
      if (config_.is_given("technique." + key)) {
        base::log_warning(fmt::format("technique.{} is not used by {}", key, config_.technique.name));
      }
    }
    if (config_.measure.warmup_steps < kMinWarmupSteps) {
      base::log_warning(fmt::format("measure.warmup_steps = {} is below {}: no throughput is given",
                                    config_.measure.warmup_steps, kMinWarmupSteps));
    }
  }

  void write_gradients(parallel::Strategy& strategy) {
    const auto gradients = strategy.gather_gradients();
    if (world_.rank() == 0) {
      train::write_tensors(config_.output.gradients + "/gradients.safetensors", gradients);
    }
  }

  void export_parameters() {
    if (config_.checkpoint.export_folder.empty()) {
      return;
    }
    const double start = base::now_s();
    auto& list = workload_->parameters();
    const bool adapters = std::ranges::any_of(list.parameters(), &model::Parameter::is_adapter);
    auto tensors = adapters ? strategy_->gather_trainable() : strategy_->gather_parameters();
    for (const auto& buffer : list.buffers()) {
      tensors.push_back({buffer.name, buffer.value});
    }
    if (world_.rank() == 0) {
      train::export_weights(config_, tensors, adapters);
      const auto file = train::exported_file(config_, adapters);
      save_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(file));
      base::log_info("weights: " + file);
    }
    save_s_ = base::now_s() - start;
  }

  /// Which way messages went, and a check of it where NCCL carried them.
  void write_transports(train::Outcome& outcome) {
    if (const auto transports = communication_->nccl_transports()) {
      const RunTransport transport(world_, *transports, nodes_of(world_));
      transport.write(writer_.get());
      if (auto check = transport.check(config_.comm.allow_slow_path)) {
        outcome.checks.push_back(std::move(*check));
      }
    }
  }

  void write_results(const train::Outcome& outcome, const metrics::Recorder& recorder, bool passed) {
    const auto stats = communication_->counts().rows();
    const auto memory =
        gather_rows(world_, metrics::memory_rows(world_.rank(), device::memory_snapshot(), strategy_->predicted_bytes()));
    const auto collectives = gather_rows(world_, metrics::collective_rows(world_.rank(), stats));
    std::vector<record::CheckRow> mine;
    for (const auto& check : outcome.checks) {
      const std::string name = world_.size() > 1 ? fmt::format("{} rank {}", check.name, world_.rank()) : check.name;
      mine.push_back({name, check.expected, check.found, check.tolerance, check.passed ? 1 : 0});
    }
    const auto checks = gather_rows(world_, mine);
    const auto payload = gather_rows(world_, std::vector{metrics::payload_bytes(stats)});
    if (!writer_) {
      return;
    }
    writer_->append_memory(memory);
    writer_->append_collectives(collectives);
    writer_->append_checks(checks);
    auto summary = make_summary(outcome, recorder, passed && std::ranges::all_of(checks, &record::CheckRow::passed));
    for (const auto& row : memory) {
      if (row.phase.str() == "run" && row.category.str() == "total") {
        summary.peak_memory_bytes = std::max(summary.peak_memory_bytes, row.peak_bytes);
      }
    }
    if (outcome.timed_steps > 0) {
      summary.wire_bytes_per_step = *std::ranges::max_element(payload) / static_cast<double>(outcome.timed_steps);
    }
    writer_->append_summary(summary);
    print_summary(summary, checks, config_.evaluate.target);
  }

  [[nodiscard]] record::SummaryRow make_summary(const train::Outcome& outcome, const metrics::Recorder& recorder, bool passed) {
    record::SummaryRow summary;
    summary.parameters = workload_->parameters().numel();
    summary.trainable_parameters = workload_->parameters().trainable_numel();
    summary.padding_elements = strategy_->padding_elements();
    summary.trainable_padding_elements = strategy_->trainable_padding_elements();
    const auto flops = workload_->flops(batch_.global_batch);
    summary.flops_per_step_model = flops.model;
    summary.flops_per_step_hardware = flops.hardware;
    summary.peak_flops = peak_.flops_per_s;
    summary.peak_source = peak_.source;
    summary.quality_name = workload_->quality_name();
    summary.quality_value = outcome.quality;
    metrics::summarise_evaluations(recorder.evaluations(), {workload_->higher_is_better(), config_.evaluate.target}, summary);
    summary.init_s = init_s_;
    summary.checkpoint_save_s = save_s_;
    summary.checkpoint_load_s = load_s_;
    summary.checkpoint_bytes = save_bytes_;
    summary.oversubscribed = world_.oversubscribed() ? 1 : 0;
    // Without passed checks there is no throughput: correctness gates speed.
    const bool warmed_up = config_.measure.warmup_steps >= kMinWarmupSteps;
    metrics::summarise_steps(recorder.rows(), world_.size(), warmed_up && passed && !device_->may_be_shared(), summary);
    summary.warmed_up = warmed_up ? 1 : 0;
    return summary;
  }

  static void print_summary(const record::SummaryRow& summary, const std::vector<record::CheckRow>& checks, double target) {
    const auto passed = std::ranges::count_if(checks, [](const auto& check) { return check.passed != 0; });
    std::string quality;
    if (std::isfinite(summary.quality_value)) {
      quality = fmt::format(", {} {:.4f}", summary.quality_name.str(), summary.quality_value);
    }
    if (summary.quality_best_steps >= 0 && summary.quality_best_steps < summary.steps_applied + summary.steps_skipped) {
      quality += fmt::format(" (best {:.4f} after {} steps)", summary.quality_best, summary.quality_best_steps);
    }
    if (summary.steps_to_target < 0 && target != 0) {
      quality += fmt::format(", target {:.4g} not reached", target);
    } else if (summary.steps_to_target >= 0) {
      quality += fmt::format(", target reached in {} steps, {:.4g} s", summary.steps_to_target, summary.time_to_target_s);
    }
    std::string throughput =
        std::isfinite(summary.samples_per_s) ? fmt::format("{:.5g} samples/s", summary.samples_per_s) : "no throughput";
    if (std::isfinite(summary.throughput_low)) {
      throughput += fmt::format(" (95 % interval {:.4g} to {:.4g}{})", summary.throughput_low, summary.throughput_high,
                                summary.steady == 0 ? ", not steady" : "");
    }
    base::log_info(fmt::format("{}, step {:.4g} ms (p95 {:.4g}), loss {:.6g} -> {:.6g}{}, {} of {} checks passed", throughput,
                               summary.step_time_median_s * 1e3, summary.step_time_p95_s * 1e3, summary.loss_first,
                               summary.loss_final, quality, passed, checks.size()));
  }

  static std::string failed_checks(const train::Outcome& outcome) {
    std::string text = "checks failed:";
    for (const auto& check : outcome.checks) {
      if (!check.passed) {
        text +=
            fmt::format(" {} (expected {}, found {}, tolerance {})", check.name, check.expected, check.found, check.tolerance);
      }
    }
    return text;
  }

  void finish(const std::string& status, const std::string& error, base::ExitCode code) {
    // The last thing all ranks do together: none may leave while rank 0's disk can still fail.
    world_.collectively("closing the record", [&] {
      if (writer_) {
        writer_->finish(status, error, static_cast<int>(code));
        base::log_info(fmt::format("record: {}", writer_->path()));
      }
    });
  }

  world::World& world_;
  config::RunConfig config_;
  base::FaultPlan& faults_;
  double start_s_;
  config::BatchPlan batch_;
  std::optional<RunDevice> device_;
  std::unique_ptr<train::Workload> workload_;
  std::optional<comm::CommunicatorStack> communication_;
  std::unique_ptr<RunTrace> trace_;        // nullptr unless output.trace
  std::optional<RunTelemetry> telemetry_;  // from the start of training
  parallel::InitialValue initial_;
  std::unique_ptr<parallel::Strategy> strategy_;
  device::GemmPeak peak_;
  std::unique_ptr<record::RecordWriter> writer_;
  double init_s_ = record::kMissing;
  double load_s_ = record::kMissing;
  double save_s_ = record::kMissing;
  std::int64_t save_bytes_ = -1;
};

}  // namespace

base::ExitCode run_session(world::World& world, config::RunConfig config, base::FaultPlan& faults, double start_s) {
  Session session(world, std::move(config), faults, start_s);
  bool training = false;
  try {
    session.set_up();
    training = true;
    return session.train();
  } catch (const world::Interrupted& signal) {
    session.abandon();
    // A launcher that ends the job because a rank died names that rank; what waits for it is said here. Two speak, for one of
    // them may be the dead one.
    if (world.rank() < 2) {
      base::log_rank(signal.what());
    }
    base::log_info("what was measured so far is in the .partial record");
    world.abort(base::ExitCode::failed);
  } catch (const std::exception& error) {
    const auto code = base::exit_code_of(error);
    session.fail(error, code);
    // Before training such an error is found by all ranks together, with nothing in flight: they can leave in order.
    const bool found_together =
        code == base::ExitCode::usage || code == base::ExitCode::io || code == base::ExitCode::environment;
    const bool orderly = !training && found_together && !world.failed();
    if (world.rank() == 0 || (!orderly && !is_common(error))) {
      base::log_error(error.what());
    }
    if (orderly) {
      return code;
    }
    end_job(world, error);
  }
}

}  // namespace shardmark::app

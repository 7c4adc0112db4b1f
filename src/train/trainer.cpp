#include "train/trainer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "metrics/rows.hpp"
#include "train/quality.hpp"
#include "train/replica_check.hpp"
#include "train/schedule.hpp"
#include "train/stop_request.hpp"

namespace shardmark::train {
namespace {

using base::FaultKind;
using base::FaultPhase;
using device::MemoryPhase;

comm::SumOrder order_of(const config::RunConfig& config) {
  return config.numerics.reduction == "ordered" ? comm::SumOrder::ordered : comm::SumOrder::fast;
}

}  // namespace

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)),
      communicator_(parts_.communication.communicator()),
      sampler_({parts_.workload.num_rows(), parts_.batch.global_batch, parts_.config.data.shuffle,
                static_cast<std::uint64_t>(parts_.config.data.seed)}),
      progress_(parts_.config.measure.warmup_steps + parts_.config.measure.steps * parts_.config.measure.blocks,
                communicator_.rank() == 0 && !parts_.quiet),
      total_steps_(parts_.config.measure.warmup_steps + parts_.config.measure.steps * parts_.config.measure.blocks),
      global_rows_(static_cast<std::size_t>(parts_.batch.global_batch)),
      loss_scale_(at::zeros({}, at::kFloat)) {
  auto& device = parts_.communication.device();
  if (device.asynchronous()) {
    const auto& measure = parts_.config.measure;
    deferred_ = std::make_unique<DeferredSteps>(device, communicator_, std::max(measure.warmup_steps, measure.steps),
                                                parts_.batch.accumulation);
    loss_scale_ = loss_scale_.to(deferred_->device());
  }
  if (parts_.trace != nullptr) {
    trace_names_.emplace(*parts_.trace);
    unit_trace_.emplace(*parts_.trace, parts_.workload.parameters());
  }
}

Trainer::TraceNames::TraceNames(base::Trace& trace)
    : step(trace.intern("step")),
      data(trace.intern("data")),
      forward(trace.intern("forward")),
      backward(trace.intern("backward")),
      gradients(trace.intern("gradients")),
      optimizer(trace.intern("optimizer")),
      evaluation(trace.intern("evaluation")) {}

void Trainer::trace(base::TraceKind kind, base::TraceName TraceNames::*name, double start_s, double end_s) {
  if (parts_.trace != nullptr) {
    parts_.trace->add(kind, (*trace_names_).*name, start_s, end_s);
  }
}

void Trainer::set_trace_step(std::int64_t step) {
  if (parts_.trace != nullptr) {
    parts_.trace->set_step(step);
  }
}

Outcome Trainer::run() {
  const auto& measure = parts_.config.measure;
  exposed_mark_s_ = parts_.communication.counts().exposed_s();  // setting up communicated too
  parts_.recorder.start_block();
  first_payload_ = parts_.strategy.payload_per_step();
  start_s_ = step_end_s_ = base::now_s();
  for (std::int64_t step = 0; step < total_steps_ && !result_.stop; ++step) {
    const std::int64_t timed_step = step - measure.warmup_steps;
    const std::int64_t block = timed_step < 0 ? -1 : timed_step / measure.steps;
    if (timed_step >= 0 && timed_step % measure.steps == 0) {
      end_block();  // of the warm-up or of the block before
      if (result_.stop) {
        break;
      }
      if (timed_step == 0) {
        parts_.communication.counts().reset();
        exposed_mark_s_ = parts_.communication.counts().exposed_s();
      }
    }
    run_step(step, block);
    outcome_.steps_done = step + 1;
    outcome_.timed_steps += is_timed(block) ? 1 : 0;
    if (const auto every = parts_.config.evaluate.every; every > 0 && (step + 1) % every == 0) {
      evaluate();
    }
  }
  end_block();
  progress_.finish();
  // What follows belongs to no step.
  parts_.communication.counts().set_counting(false);
  outcome_.stopped = result_.stop && outcome_.steps_done < total_steps_;
  if (outcome_.timed_steps > 0) {
    check_payload();
  }
  check_memory();
  check_replicas(outcome_.steps_done - 1);
  add_check("loss_finite", 1, last_finite_ ? 1 : 0, 0);
  evaluate();
  return outcome_;
}

void Trainer::run_step(std::int64_t step, std::int64_t block) {
  parts_.communication.set_step(step);
  set_trace_step(step);
  StepTimes times;
  parts_.strategy.begin_step();
  scalars_ = deferred_ ? deferred_->begin_step() : nullptr;
  train_micro_steps(step, times);
  if (deferred_) {
    finish_deferred(step, block);
  } else {
    finish_on_host(step, block, times);
  }
  const auto every = parts_.config.numerics.replica_check_every;
  if (every > 0 && (step + 1) % every == 0) {
    check_replicas(step);
    step_end_s_ = base::now_s();
  }
}

void Trainer::finish_on_host(std::int64_t step, std::int64_t block, StepTimes& times) {
  double start = base::now_s();
  // Both are under way together. Gradients are waited for first: a wait for a rank that got stuck in backward then names what
  // of them is missing.
  comm::Pending control = start_control(step);
  result_.gradient = parts_.strategy.finish_gradients();
  control.wait();
  result_.loss = control_[0];
  result_.stop = control_[1] > 0;
  double end = base::now_s();
  times.backward_s += end - start;
  trace(base::TraceKind::phase, &TraceNames::gradients, start, end);
  if (step == 0 && parts_.on_first_gradients) {
    parts_.on_first_gradients(parts_.strategy);
  }
  parts_.faults.reach(FaultPhase::optimizer, step);
  device::set_memory_phase(MemoryPhase::optimizer);
  start = base::now_s();
  apply_update(step);
  parts_.strategy.end_step();
  end = base::now_s();
  times.optimizer_s = end - start;
  trace(base::TraceKind::phase, &TraceNames::optimizer, start, end);
  record_step(step, block, times);
}

void Trainer::finish_deferred(std::int64_t step, std::int64_t block) {
  const auto& config = parts_.config;
  communicator_.all_reduce({&scalars_->loss, 1, base::DType::fp64}, comm::Purpose::control, step, order_of(config)).wait();
  parts_.strategy.finish_gradients(scalars_, config.optimizer.clip_norm);
  deferred_->mark();
  if (step == 0 && parts_.on_first_gradients) {
    parts_.on_first_gradients(parts_.strategy);
  }
  parts_.faults.reach(FaultPhase::optimizer, step);
  device::set_memory_phase(MemoryPhase::optimizer);
  result_.lr = learning_rate(config.schedule, config.optimizer.lr, step, total_steps_);
  parts_.strategy.update(result_.lr, scalars_);
  plant_bitflip(step);
  parts_.strategy.end_step();
  deferred_->mark();
  auto row = row_of(step, block);
  row.comm_exposed_s = std::nan("");  // the host waits for nothing, and what the device waits for is not measured
  unfinished_.push_back(row);
}

void Trainer::collect_deferred() {
  if (!deferred_) {
    return;
  }
  const auto steps = deferred_->collect();
  const auto rows = std::exchange(unfinished_, {});
  SM_CHECK(rows.size() == steps.size(), "a deferred step without a row");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& [scalars, times] = steps[i];
    const auto& row = rows[i];
    result_.loss = scalars.loss;
    result_.gradient = {scalars.norm, scalars.finite != 0, "the gradient of the global batch"};
    result_.applied = scalars.applied != 0;
    result_.lr = row.lr;
    last_finite_ = result_.applied;
    add_row(row, times, base::now_s());
    check_finite(row.step);
  }
  std::int64_t stop = stop_requested() ? 1 : 0;
  communicator_.all_reduce(comm::host_buffer(&stop, 1, base::DType::int64), comm::Purpose::control, 0).wait();
  result_.stop = stop > 0;
}

void Trainer::train_micro_steps(std::int64_t step, StepTimes& times) {
  const auto& batch = parts_.batch;
  double mark = base::now_s();
  const auto lap = [&](double& phase, base::TraceName TraceNames::*name) {
    const double now = base::now_s();
    phase += now - mark;
    trace(base::TraceKind::phase, name, mark, now);
    mark = now;
  };
  parts_.faults.reach(FaultPhase::data, step);
  sampler_.rows_of(step, 0, global_rows_);
  const double targets = parts_.workload.targets(global_rows_);
  if (!(targets > 0)) {
    throw base::DataError(
        fmt::format("step {}: no row of the global batch has a target in {}; use more rows a batch, or other data", step,
                    parts_.workload.data_source()));
  }
  double scale = 1.0 / targets;
  if (parts_.faults.due(FaultPhase::backward, step, FaultKind::nan)) {
    scale = std::nan("");
  }
  loss_scale_.fill_(static_cast<float>(scale));
  local_loss_ = 0;
  work_ = {};
  for (std::int64_t micro = 0; micro < batch.accumulation; ++micro) {
    const std::int64_t first_slot = first_slot_of(micro);
    const std::span<const std::int64_t> rows(global_rows_.data() + first_slot, static_cast<std::size_t>(batch.micro_batch));
    const model::ForwardKey key{static_cast<std::uint64_t>(parts_.config.numerics.seed), step, first_slot, true};
    const Batch loaded = parts_.workload.load(rows, key);
    announce_after(step, micro);
    const Work work = parts_.workload.work(rows);
    work_.samples += work.samples;
    work_.tokens += work.tokens;
    work_.padded_tokens += work.padded_tokens;
    mark_deferred();
    lap(times.data_s, &TraceNames::data);
    parts_.faults.reach(FaultPhase::forward, step);
    device::set_memory_phase(MemoryPhase::forward);
    parts_.strategy.begin_micro_step(micro);
    const torch::Tensor loss = parts_.workload.loss_sum(loaded);
    add_loss(loss);
    mark_deferred();
    lap(times.forward_s, &TraceNames::forward);
    parts_.faults.reach(FaultPhase::backward, step);
    device::set_memory_phase(MemoryPhase::backward);
    // Divided by the global count before backward: nothing divides after the sum over ranks.
    torch::autograd::backward({loss}, {loss_scale_});
    if (unit_trace_) {
      unit_trace_->end_backward();
    }
    parts_.strategy.end_micro_step();
    mark_deferred();
    lap(times.backward_s, &TraceNames::backward);
  }
  local_loss_ /= targets;
  if (deferred_) {
    const torch::NoGradGuard no_grad;
    deferred_->loss().div_(targets);
  }
}

std::int64_t Trainer::first_slot_of(std::int64_t micro) const {
  const auto& batch = parts_.batch;
  const std::int64_t place = parts_.reverse_rows ? batch.accumulation - 1 - micro : micro;
  return (communicator_.rank() * batch.accumulation + place) * batch.micro_batch;
}

void Trainer::announce_after(std::int64_t step, std::int64_t micro) {
  const bool last = micro + 1 == parts_.batch.accumulation;
  const std::int64_t next_step = last ? step + 1 : step;
  if (next_step == total_steps_) {
    return;
  }
  const std::int64_t first_slot = first_slot_of(last ? 0 : micro + 1);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(parts_.batch.micro_batch));
  sampler_.rows_of(next_step, first_slot, rows);
  parts_.workload.announce(rows, {static_cast<std::uint64_t>(parts_.config.numerics.seed), next_step, first_slot, true});
}

void Trainer::add_loss(const torch::Tensor& loss) {
  if (deferred_) {
    const torch::NoGradGuard no_grad;
    deferred_->loss().add_(loss.detach());
  } else {
    local_loss_ += static_cast<double>(*loss.const_data_ptr<float>());
  }
}

void Trainer::mark_deferred() {
  if (deferred_) {
    deferred_->mark();
  }
}

comm::Pending Trainer::start_control(std::int64_t step) {
  control_ = {local_loss_, stop_requested() ? 1.0 : 0.0};
  return communicator_.all_reduce(comm::host_buffer(control_.data(), 2, base::DType::fp64), comm::Purpose::control, step,
                                  order_of(parts_.config));
}

void Trainer::apply_update(std::int64_t step) {
  const auto& config = parts_.config;
  const auto& gradient = result_.gradient;
  result_.lr = learning_rate(config.schedule, config.optimizer.lr, step, total_steps_);
  result_.applied = gradient.finite && std::isfinite(result_.loss);
  last_finite_ = result_.applied;
  if (!result_.applied) {
    return;
  }
  const double clip = config.optimizer.clip_norm;
  const auto coefficient = clip > 0 ? static_cast<float>(std::min(1.0, clip / (gradient.norm + 1e-6))) : 1.0F;
  parts_.strategy.update(result_.lr, coefficient);
  plant_bitflip(step);
}

void Trainer::plant_bitflip(std::int64_t step) {
  if (const auto element = parts_.faults.due(FaultPhase::optimizer, step, FaultKind::bitflip)) {
    parts_.strategy.flip_bit(element->empty() ? 0 : std::stol(*element));
  }
}

record::StepRow Trainer::row_of(std::int64_t step, std::int64_t block) const {
  record::StepRow row;
  row.block = block;
  row.step = step;
  row.rank = communicator_.rank();
  row.timed = is_timed(block) ? 1 : 0;
  row.lr = result_.lr;
  row.samples = work_.samples;
  row.tokens = work_.tokens;
  row.padded_tokens = work_.padded_tokens;
  row.peak_bytes = device::take_step_peak_bytes();
  return row;
}

void Trainer::record_step(std::int64_t step, std::int64_t block, StepTimes& times) {
  record::StepRow row = row_of(step, block);
  row.comm_exposed_s = parts_.communication.counts().exposed_s() - exposed_mark_s_;
  exposed_mark_s_ = parts_.communication.counts().exposed_s();
  const double now = base::now_s();
  times.total_s = now - step_end_s_;
  trace(base::TraceKind::step, &TraceNames::step, step_end_s_, now);
  set_trace_step(-1);
  step_end_s_ = now;
  add_row(row, times, now);
  check_finite(step);
}

void Trainer::add_row(record::StepRow row, const StepTimes& times, double now_s) {
  row.data_s = times.data_s;
  row.forward_s = times.forward_s;
  row.backward_s = times.backward_s;
  row.optimizer_s = times.optimizer_s;
  row.total_s = times.total_s;
  SM_CHECK(row.total_s > 0, "the clock went backwards");
  row.loss = result_.loss;
  row.grad_norm = result_.gradient.norm;
  row.applied = result_.applied ? 1 : 0;
  timed_skips_ += row.timed != 0 && !result_.applied ? 1 : 0;
  parts_.recorder.add(row);
  progress_.step_done(row.step, result_.loss, sampler_.real_rows(row.step), now_s);
  if (parts_.on_step) {
    parts_.on_step(result_.loss, result_.gradient.norm);
  }
}

void Trainer::check_finite(std::int64_t step) {
  if (result_.applied || parts_.config.numerics.on_nonfinite != "fail") {
    return;
  }
  progress_.finish();
  end_block();  // deferred steps after this one are void
  throw base::NumericsError(fmt::format(
      "step {}: {}; the run stops (numerics.on_nonfinite = \"fail\"). Lower optimizer.lr, set "
      "optimizer.clip_norm, or look at the data",
      step,
      result_.gradient.finite ? fmt::format("the loss is {}", result_.loss)
                              : fmt::format("{} is not finite (loss {})", result_.gradient.nonfinite, result_.loss)));
}

void Trainer::end_block() {
  auto& counts = parts_.communication.counts();
  counts.set_counting(false);
  collect_deferred();
  parts_.recorder.end_block();
  communicator_.barrier().wait();
  counts.set_counting(true);
  exposed_mark_s_ = counts.exposed_s();
  parts_.recorder.start_block();
  step_end_s_ = base::now_s();
  if (deferred_) {
    deferred_->start_block();
  }
}

void Trainer::check_replicas(std::int64_t step) {
  auto& counts = parts_.communication.counts();
  const bool counting = counts.counting();
  counts.set_counting(false);
  const auto found = compare_replicas(parts_.strategy, communicator_, step);
  counts.set_counting(counting);
  if (!found.odd_ranks.empty()) {
    throw base::NumericsError(fmt::format("after step {} the parameters of rank(s) {} differ from the other ranks' replicas",
                                          step, fmt::join(found.odd_ranks, ", ")));
  }
  // Without two ranks that hold the same parameters there is nothing to say.
  if (found.compared && step + 1 == outcome_.steps_done) {
    add_check("replicas_equal", 1, 1, 0);
  }
}

void Trainer::evaluate() {
  const std::int64_t steps = outcome_.steps_done;
  if (parts_.workload.num_eval_rows() == 0 || evaluated_steps_ == steps) {
    return;
  }
  evaluated_steps_ = steps;
  collect_deferred();  // what steps computed is timed until here
  auto& counts = parts_.communication.counts();
  const bool counting = counts.counting();
  counts.set_counting(false);
  const double start = base::now_s();
  outcome_.quality = quality_of(parts_.workload, parts_.strategy, communicator_);
  const double end = base::now_s();
  trace(base::TraceKind::phase, &TraceNames::evaluation, start, end);
  counts.set_counting(counting);
  parts_.recorder.add(record::EvaluationRow{steps, outcome_.quality, end - start_s_, end - start});
  // The next step begins here, in time and in memory.
  static_cast<void>(device::take_step_peak_bytes());
  exposed_mark_s_ = counts.exposed_s();
  step_end_s_ = base::now_s();
  if (deferred_) {
    deferred_->start_block();
  }
}

void Trainer::check_payload() {
  const auto stats = parts_.communication.counts().rows();
  auto payload = parts_.strategy.payload_per_step();
  if (parts_.config.measure.warmup_steps == 0) {
    // Step 0 is timed too, and ran before buckets were rebuilt: their borders, and with them the padding, were others.
    const double share = 1.0 / static_cast<double>(outcome_.timed_steps);
    payload.bytes += share * (first_payload_.bytes - payload.bytes);
    payload.of_update += share * (first_payload_.of_update - payload.of_update);
  }
  // A deferred step sends its updated parts before anyone knows whether it changed them.
  const double skipped = deferred_ ? 0.0 : static_cast<double>(timed_skips_) / static_cast<double>(outcome_.timed_steps);
  const double expected = payload.bytes - payload.of_update * skipped;
  const double found = metrics::payload_bytes(stats) / static_cast<double>(outcome_.timed_steps);
  // Exact integers of bytes in double; only the division by ranks may round.
  add_check("payload_bytes_per_step", expected, found, 1e-12 * expected);
}

void Trainer::check_memory() {
  const auto predicted = parts_.strategy.predicted_bytes();
  const auto seen = device::memory_snapshot();
  for (const auto category : {device::MemoryCategory::parameters, device::MemoryCategory::gradients,
                              device::MemoryCategory::optimizer_state, device::MemoryCategory::offloaded}) {
    const auto at = static_cast<std::size_t>(category);
    add_check(fmt::format("persistent_bytes_{}", device::name_of(category)), static_cast<double>(predicted[at]),
              static_cast<double>(seen.current[at]), 0);
  }
  add_check("persistent_bytes_gathered", 0,
            static_cast<double>(seen.current[static_cast<std::size_t>(device::MemoryCategory::gathered)]), 0);
  // The first passes gather nothing ahead, and a run may end after them; how many buckets travel at once is for the network to
  // say. Less than predicted is no fault, more is.
  for (const auto category : {device::MemoryCategory::gathered, device::MemoryCategory::buckets}) {
    const auto at = static_cast<std::size_t>(category);
    const auto most = static_cast<double>(predicted[at]);
    const auto found = static_cast<double>(seen.run_peak[at]);
    outcome_.checks.push_back({fmt::format("peak_bytes_{}", device::name_of(category)), most, found, 0, found <= most});
  }
}

void Trainer::add_check(std::string name, double expected, double found, double tolerance) {
  const bool passed = std::abs(found - expected) <= tolerance;
  outcome_.checks.push_back({std::move(name), expected, found, tolerance, passed});
}

}  // namespace shardmark::train

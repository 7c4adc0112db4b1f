// Tables that say how a run went: steps, memory, collectives, checks, summary.

#include <cstddef>

#include "record/schema_tables.hpp"

namespace shardmark::record {

Table steps_table() {
  const std::string clock = "monotonic clock of the rank";
  return TableBuilder("steps", sizeof(StepRow), "one row per (step, rank), warm-up included")
      .SM_COLUMN(StepRow, block, "1", "block of timed steps, -1 in warm-up", "trainer")
      .SM_COLUMN(StepRow, step, "1", "optimizer step from 0, warm-up included", "trainer")
      .SM_COLUMN(StepRow, rank, "1", "world rank of the row", "MPI")
      .SM_COLUMN(StepRow, timed, "1", "1 if the step counts in throughput", "trainer")
      .SM_COLUMN(StepRow, data_s, "s", "choosing and loading the rank's rows", clock)
      .SM_COLUMN(StepRow, forward_s, "s", "forward passes of all micro-steps", clock)
      .SM_COLUMN(StepRow, backward_s, "s", "backward passes, and waiting for the reductions they started", clock, "",
                 "holds exposed communication: subtract comm_exposed_s for compute alone")
      .SM_COLUMN(StepRow, comm_exposed_s, "s", "the rank's thread inside the communicator: start, progress, test and wait",
                 clock, "", "includes waiting for slower ranks; part of the other columns, not in addition to them")
      .SM_COLUMN(StepRow, optimizer_s, "s", "clipping, update and the end of the step", clock)
      .SM_COLUMN(StepRow, total_s, "s", "time since the end of the step before", clock, "end of step i - end of step i-1",
                 "a rank's rows of a block add up to its block time; a step's time is the largest over ranks")
      .SM_COLUMN(StepRow, loss, "1", "loss of the global batch before the update, equal on all ranks",
                 "summed over ranks each step", "sum of target losses / number of targets of the global batch")
      .SM_COLUMN(StepRow, grad_norm, "1", "L2 norm of the global batch's gradient before clipping",
                 "the strategy, after reduction", "sqrt(sum g^2)",
                 "exact and shard-blind with numerics.reduction = ordered, a double sum otherwise")
      .SM_COLUMN(StepRow, applied, "1", "1 if the optimizer updated, 0 if the step was skipped as not finite", "trainer")
      .SM_COLUMN(StepRow, lr, "1", "learning rate of the step", "schedule")
      .SM_COLUMN(StepRow, samples, "1", "rows of this rank, fillers of a last partial batch excluded", "workload")
      .SM_COLUMN(StepRow, tokens, "1", "tokens of this rank that are not padding; 0 where rows are not texts", "workload")
      .SM_COLUMN(StepRow, padded_tokens, "1", "rows of this rank x padded length", "workload", "", "not work done: tokens is")
      .SM_COLUMN(StepRow, peak_bytes, "bytes", "largest sum of tensor memory in the step", "allocator hook", "",
                 "tensors only, not the process")
      .SM_COLUMN(StepRow, energy_j, "J", "energy of the rank's device in the step, NaN where it has no counter",
                 "device counters",
                 "(counter at the block's end - counter at its start) / steps of the block: equal in all steps of a block",
                 "the counter of NVML moves some ten times a second: blocks shorter than a second tell little; checks of "
                 "replicas within a block count too")
      .take();
}

Table memory_table() {
  return TableBuilder("memory", sizeof(MemoryRow), "tensor memory by rank, phase and category, beside the prediction")
      .SM_COLUMN(MemoryRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(MemoryRow, phase, "", "init, forward, backward, optimizer, or run for the whole", "trainer")
      .SM_COLUMN(MemoryRow, category, "",
                 "parameters, gradients, optimizer_state, offloaded, gathered, buckets, activations, workspace, other; total; "
                 "reserved and host_rss (phase run); on a device also host and driver_used (phase run)",
                 "allocator hook", "",
                 "host_rss is the whole process, reserved what the allocator holds; the others are bytes asked for. offloaded "
                 "is host memory (technique.offload: states and what is staged for them): on a CPU one memory with the others, "
                 "and part of total; on a device no part of it. host: tensors in host memory beside a device. driver_used: the "
                 "whole device at the end of the run, other processes, contexts and NCCL included")
      .SM_COLUMN(MemoryRow, current_bytes, "bytes", "live at the end of the run", "allocator hook")
      .SM_COLUMN(MemoryRow, peak_bytes, "bytes", "largest in the phase, what was live at its start included", "allocator hook")
      .SM_COLUMN(MemoryRow, at_run_peak_bytes, "bytes", "live at the moment of the largest sum", "allocator hook", "",
                 "these add up to the run's peak; the peaks of categories do not")
      .SM_COLUMN(MemoryRow, predicted_bytes, "bytes",
                 "by the technique's formulas: what persists, or the peak of gathered and buckets; -1 where none is predicted",
                 "strategy")
      .take();
}

Table collectives_table() {
  return TableBuilder("collectives", sizeof(CollectiveRow),
                      "one row per distinct (rank, operation, purpose, group, dtype, message_bytes) over the timed steps")
      .SM_COLUMN(CollectiveRow, rank, "1", "world rank", "MPI")
      .SM_COLUMN(CollectiveRow, operation, "",
                 "all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_receive, barrier", "communicator")
      .SM_COLUMN(CollectiveRow, purpose, "", "gradient, parameter, buffer or control", "caller")
      .SM_COLUMN(CollectiveRow, group, "", "name of the group of ranks", "communicator")
      .SM_COLUMN(CollectiveRow, dtype, "", "type of the elements on the wire", "communicator")
      .SM_COLUMN(CollectiveRow, message_bytes, "bytes", "the whole padded buffer S", "communicator")
      .SM_COLUMN(CollectiveRow, count, "1", "calls", "counting communicator")
      .SM_COLUMN(CollectiveRow, wire_bytes, "bytes", "nominal bytes that the rank sends in all calls", "counting communicator",
                 "all_reduce 2 (g-1)/g S, send_receive S, barrier 0, others (g-1)/g S, in a group of g",
                 "nominal: what a network carries comes from its own counters")
      .SM_COLUMN(CollectiveRow, total_s, "s", "from start to completion, all calls", "counting communicator", "",
                 "overlaps compute and other calls; NaN, as the four below, where collectives run without the host (NCCL)")
      .SM_COLUMN(CollectiveRow, exposed_s, "s", "the rank's thread inside the communicator for these calls",
                 "counting communicator")
      .SM_COLUMN(CollectiveRow, min_s, "s", "shortest call", "counting communicator")
      .SM_COLUMN(CollectiveRow, median_s, "s", "median call", "counting communicator", "",
                 "exact up to 512 calls, then of an even selection")
      .SM_COLUMN(CollectiveRow, max_s, "s", "longest call", "counting communicator")
      .take();
}

Table evaluations_table() {
  const std::string clock = "monotonic clock of rank 0";
  return TableBuilder("evaluations", sizeof(EvaluationRow), "one row per evaluation on the held-out rows")
      .SM_COLUMN(EvaluationRow, steps, "1", "optimizer steps done before it, warm-up included", "trainer")
      .SM_COLUMN(EvaluationRow, quality, "1", "quality over all held-out rows; quality_name of /summary says which", "workload",
                 "", "of the same parameters the same at every number of ranks")
      .SM_COLUMN(EvaluationRow, time_s, "s", "from the start of step 0 to the end of this evaluation", clock, "",
                 "holds warm-up steps and the evaluations before it, not the program's start")
      .SM_COLUMN(EvaluationRow, duration_s, "s", "this evaluation alone", clock, "", "part of no step's time")
      .take();
}

Table checks_table() {
  return TableBuilder("checks", sizeof(CheckRow), "what the run proved about itself")
      .SM_COLUMN(CheckRow, name, "", "what was checked", "trainer")
      .SM_COLUMN(CheckRow, expected, "1", "value by definition or formula", "trainer")
      .SM_COLUMN(CheckRow, found, "1", "value measured", "trainer")
      .SM_COLUMN(CheckRow, tolerance, "1", "largest difference that passes", "trainer")
      .SM_COLUMN(CheckRow, passed, "1", "1 if |found - expected| <= tolerance", "trainer", "",
                 "a run with a failed check has no throughput")
      .take();
}

Table summary_table() {
  const std::string steps = "computed from /steps";
  return TableBuilder("summary", sizeof(SummaryRow), "one row: the run in numbers")
      .SM_COLUMN(SummaryRow, parameters, "1", "parameters of the model without padding", "model")
      .SM_COLUMN(SummaryRow, trainable_parameters, "1", "those with gradients", "model")
      .SM_COLUMN(SummaryRow, padding_elements, "1", "elements of the flat layout that belong to no parameter, timed part",
                 "strategy")
      .SM_COLUMN(SummaryRow, trainable_padding_elements, "1", "those in trainable buffers", "strategy", "",
                 "T of the payload formulas = trainable_parameters + this")
      .SM_COLUMN(SummaryRow, step_time_median_s, "s", "median over timed steps of the largest rank's time", steps)
      .SM_COLUMN(SummaryRow, step_time_p95_s, "s", "95th percentile of the same", steps)
      .SM_COLUMN(SummaryRow, step_time_cv, "1", "coefficient of variation of the same", steps, "deviation / mean")
      .SM_COLUMN(SummaryRow, samples_per_s, "1/s", "throughput of the whole job", steps,
                 "samples / sum over blocks of the largest rank's block time",
                 "missing unless warmed_up and all checks passed; never a mean of rates")
      .SM_COLUMN(SummaryRow, tokens_per_s, "1/s", "the same in tokens that are not padding", steps,
                 "tokens / sum over blocks of the largest rank's block time")
      .SM_COLUMN(SummaryRow, samples_per_s_per_gpu, "1/s", "samples_per_s / ranks: on a CPU a rank is a process", steps,
                 "samples_per_s / world_size")
      .SM_COLUMN(SummaryRow, tokens_per_s_per_gpu, "1/s", "tokens_per_s / ranks", steps, "tokens_per_s / world_size")
      .SM_COLUMN(SummaryRow, flops_per_step_model, "1",
                 "floating-point operations that the mathematics of a step needs, all ranks", "workload",
                 "2 per multiply-add; backward = 2 x forward")
      .SM_COLUMN(SummaryRow, flops_per_step_hardware, "1", "those executed, recomputation included", "workload")
      .SM_COLUMN(SummaryRow, peak_flops, "1/s", "dense peak of one rank's device for the compute type", "peak_source says")
      .SM_COLUMN(SummaryRow, peak_source, "", "where peak_flops comes from", "device", "",
                 "on a CPU a measured matrix product, not a data sheet")
      .SM_COLUMN(SummaryRow, mfu, "1", "model FLOPs utilisation", steps,
                 "flops_per_step_model / world_size / step_time_median_s / peak_flops", "NaN for an unknown device")
      .SM_COLUMN(SummaryRow, peak_memory_bytes, "bytes", "largest sum of tensor memory of any rank", "allocator hook", "",
                 "tensors, not the process: see host_rss in /memory; on a CPU what is offloaded counts too")
      .SM_COLUMN(SummaryRow, wire_bytes_per_step, "bytes", "nominal gradient + parameter bytes of a timed step, largest rank",
                 "counting communicator", "sum of wire_bytes / timed steps")
      .SM_COLUMN(SummaryRow, comm_exposed_fraction, "1", "share of step time inside the communicator", steps,
                 "sum comm_exposed_s / sum total_s over timed rows")
      .SM_COLUMN(SummaryRow, energy_j_per_step, "J", "energy of a timed step over all ranks", steps,
                 "sum energy_j over timed rows / timed steps", "NaN unless every rank's device has a counter; hosts use more")
      .SM_COLUMN(SummaryRow, loss_first, "1", "loss of step 0", steps)
      .SM_COLUMN(SummaryRow, loss_final, "1", "loss of the last step", steps, "", "of one batch: noisy with small batches")
      .SM_COLUMN(SummaryRow, quality_name, "", "what quality_value is: accuracy, mse, ...", "workload")
      .SM_COLUMN(SummaryRow, quality_value, "1", "over all held-out rows after training, NaN without data.eval_path",
                 "workload")
      .SM_COLUMN(SummaryRow, quality_best, "1", "best quality of all evaluations: the largest, or the smallest of a loss",
                 "computed from /evaluations", "", "the best of several looks at the same rows is a little too good")
      .SM_COLUMN(SummaryRow, quality_best_steps, "1", "steps done when it was first reached, -1 without an evaluation",
                 "computed from /evaluations")
      .SM_COLUMN(SummaryRow, steps_to_target, "1", "steps done when evaluate.target was first reached, -1 if it was not",
                 "computed from /evaluations", "", "known to evaluate.every steps only")
      .SM_COLUMN(SummaryRow, time_to_target_s, "s", "time_s of that evaluation, NaN if the target was not reached",
                 "computed from /evaluations", "", "holds warm-up and evaluations; compare at equal evaluate.every only")
      .SM_COLUMN(SummaryRow, throughput_low, "1/s", "lower end of the 95 % interval of samples_per_s", steps,
                 "Student t over block rates")
      .SM_COLUMN(SummaryRow, throughput_high, "1/s", "upper end", steps, "Student t over block rates",
                 "spread within this run only: other runs differ by more")
      .SM_COLUMN(SummaryRow, init_s, "s", "from the start of the program to the first step", "monotonic clock of rank 0")
      .SM_COLUMN(SummaryRow, first_step_s, "s", "time of step 0, all one-time costs included", steps)
      .SM_COLUMN(SummaryRow, steps_applied, "1", "optimizer updates", steps)
      .SM_COLUMN(SummaryRow, steps_skipped, "1", "steps skipped as not finite", steps)
      .SM_COLUMN(SummaryRow, checkpoint_save_s, "s", "time to save a checkpoint or export, NaN without one",
                 "monotonic clock of rank 0")
      .SM_COLUMN(SummaryRow, checkpoint_load_s, "s", "time to load model.checkpoint, NaN without one",
                 "monotonic clock of rank 0")
      .SM_COLUMN(SummaryRow, checkpoint_bytes, "bytes", "size of what was saved, -1 without it", "file system")
      .SM_COLUMN(SummaryRow, warmed_up, "1", "1 after at least 3 warm-up steps", "trainer", "", "0: no throughput is given")
      .SM_COLUMN(SummaryRow, steady, "1", "1 if medians of the first and last third of timed steps differ by under 5 %", steps)
      .SM_COLUMN(SummaryRow, oversubscribed, "1", "1 if some node had more ranks than cores", "world", "",
                 "such records are not compared")
      .take();
}

}  // namespace shardmark::record

// The table of `shardmark comm`: collectives by operation, type and size.

#include <cstddef>

#include "record/schema_tables.hpp"

namespace shardmark::record {

Table comm_table() {
  const std::string clock = "monotonic clock of each rank, gathered after the loop";
  const std::string overlap =
      "calls follow each other: where one rank sends and does not wait, as the root of a small broadcast, they overlap";
  return TableBuilder("comm", sizeof(CommRow), "one row per case that `shardmark comm` measured: empty in the record of a run")
      .SM_COLUMN(CommRow, operation, "",
                 "all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_receive (to the next rank), barrier",
                 "--op")
      .SM_COLUMN(CommRow, group, "",
                 "world, node (the ranks of a node) or across (one rank per node); with --pairs the nodes, or ranks, that "
                 "took part",
                 "--group", "", "node and across: all such groups run at the same time")
      .SM_COLUMN(CommRow, backend, "",
                 "what carries the messages: nccl between CUDA devices, mpi between hosts, self where the world is one rank",
                 "communicator")
      .SM_COLUMN(CommRow, ranks, "1", "ranks of a group", "MPI")
      .SM_COLUMN(CommRow, dtype, "", "type of the elements", "--dtype")
      .SM_COLUMN(CommRow, reduction, "", "sum, max or min; empty where nothing is reduced", "--reduction")
      .SM_COLUMN(CommRow, sum_order, "", "fast or ordered; empty where nothing is summed", "--order")
      .SM_COLUMN(CommRow, in_place, "1", "1 if send and receive share memory; -1 for a barrier", "--in-place, --out-of-place",
                 "", "all_reduce and broadcast are in place always, all_to_all and send_receive never")
      .SM_COLUMN(
          CommRow, message_bytes, "bytes", "size S of the operation as nccl-tests define it", "--min, --max, --factor",
          "reduce_scatter, all_to_all: what a rank sends; all_gather: what it receives; others: its buffer",
          "a multiple of the element, and of ranks elements where the operation has parts: the largest that is not above "
          "the size asked for, but one such unit at least")
      .SM_COLUMN(
          CommRow, count, "1", "elements in message_bytes", "--min, --max, --factor", "message_bytes / size of dtype",
          "nccl-tests print the count argument of the call instead: of reduce_scatter, all_gather and all_to_all that is "
          "this count / ranks, of the others it is the same")
      .SM_COLUMN(CommRow, iterations, "1", "timed calls, the same number on all ranks", "--iterations", "",
                 "calls follow each other without a barrier, as in nccl-tests")
      .SM_COLUMN(CommRow, time_p50_s, "s", "median over iterations of the slowest rank's time", clock, "", overlap)
      .SM_COLUMN(CommRow, time_p99_s, "s", "99th percentile of the same: the smallest that 99 % do not exceed", clock, "",
                 "with fewer than 100 iterations the largest")
      .SM_COLUMN(CommRow, time_min_s, "s", "smallest of the same", clock)
      .SM_COLUMN(CommRow, time_mean_s, "s", "mean of the same", clock, "",
                 "what nccl-tests call time is the mean without the maximum over ranks")
      .SM_COLUMN(
          CommRow, algbw_gb_s, "GB/s", "algorithm bandwidth in 10^9 bytes/s", "computed from the row",
          "message_bytes / time_p50_s / 1e9",
          "falls as ranks are added even where the network is as fast; of one rank it is the speed of a copy, or of nothing")
      .SM_COLUMN(CommRow, busbw_gb_s, "GB/s", "bus bandwidth in 10^9 bytes/s: comparable with that of the links",
                 "computed from the row",
                 "algbw_gb_s x: all_reduce 2(n-1)/n, reduce_scatter, all_gather, all_to_all (n-1)/n, broadcast, send_receive 1",
                 "of one direction; n = ranks; missing of one rank, which sends nothing, and of a barrier")
      .SM_COLUMN(CommRow, wrong, "1", "received elements that differ from values computed without messages, all ranks",
                 "compared before and after the timed loop, over the same buffers", "",
                 "0 = checked and right; -1 where there is nothing to check: a barrier is timed, not proved")
      .take();
}

}  // namespace shardmark::record

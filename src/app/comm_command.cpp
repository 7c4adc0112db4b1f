// `shardmark comm`: latency and bandwidth of the communicator's collectives, every result checked.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/faults.hpp"
#include "app/bench/memory_check.hpp"
#include "app/bench/output.hpp"
#include "app/bench/pairs.hpp"
#include "app/bench/paths.hpp"
#include "app/command.hpp"
#include "app/in_world.hpp"
#include "app/kernel_files.hpp"
#include "app/run_device.hpp"
#include "base/log.hpp"
#include "comm/factory.hpp"
#include "device/cuda_memory.hpp"
#include "train/stop_request.hpp"

namespace shardmark::app {
namespace {

using bench::CommArguments;
using bench::CommOptions;
using bench::Outcome;
using bench::Output;

constexpr std::int64_t kHostMaxBytes = std::int64_t{16} << 20;
constexpr std::int64_t kDeviceMaxBytes = std::int64_t{64} << 20;

/// The groups of --group, all of one size: a row says how many ranks it is about.
std::unique_ptr<comm::Communicator> split_world(world::World& world, comm::Communicator& all, bench::GroupKind kind,
                                                bench::Group& group) {
  if (kind == bench::GroupKind::world) {
    group = {&all, "world", 0};
    return nullptr;
  }
  const bool node = kind == bench::GroupKind::node;
  const int color = node ? world.node() : world.node_rank();
  auto made = all.split(color, node ? "node" : "across");
  group = {made.get(), made->name(), static_cast<std::uint64_t>(color)};
  const int size = made->size();
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&size, 1)))) {
    if (const int other = *reinterpret_cast<const int*>(bytes.data()); other != size) {
      throw base::ConfigError(
          fmt::format("--group {}: nodes have unequal numbers of ranks; start equally many on each", made->name()));
    }
  }
  return made;
}

/// Collective. Throws ConfigError on all ranks if messages of this size are more than some node or device can hold.
void require_memory(world::World& world, const RunDevice& device, const std::string& backend, std::int64_t message_bytes) {
  bench::RankMemory mine;
  mine.node = world.node();
  mine.host_free_bytes = host_memory().free_bytes();
  if (device.get() != nullptr) {
    // Over MPI what is on a device passes through as much host memory again.
    mine.host_buffers = backend == "mpi" ? 2 * bench::kBuffers : bench::kBuffers;
    const auto memory = device::cuda_memory(device.facts().index);
    if (memory.driver_total_bytes >= 0 && memory.driver_used_bytes >= 0) {
      mine.device_free_bytes = memory.driver_total_bytes - memory.driver_used_bytes;
    }
    device.facts().uuid.copy(mine.device, sizeof mine.device - 1);
  }
  std::vector<bench::RankMemory> ranks;
  std::vector<std::string> hosts;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&ranks.emplace_back(), bytes.data(), sizeof mine);
    hosts.push_back(world.host_of(static_cast<int>(hosts.size())));
  }
  bench::require_memory(ranks, hosts, message_bytes);
}

class Measurement {
 public:
  Measurement(world::World& world, CommOptions options, base::FaultPlan& faults)
      : world_(world), options_(std::move(options)), faults_(faults) {}

  base::ExitCode run() {
    const RunDevice device(world_);
    auto communicator_options = device.communicator_options({}, nullptr);
    communicator_options.backend = options_.backend;
    communicator_options.check = false;
    communicator_options.init_deadline_s = options_.deadline_s;
    auto stack = comm::make_communicator(world_, communicator_options);
    if (options_.max_bytes == 0) {
      options_.max_bytes = options_.pairs
                               ? bench::kPairBytes
                               : std::max(options_.min_bytes, stack.backend() == "nccl" ? kDeviceMaxBytes : kHostMaxBytes);
    }
    bench::Group group;
    std::unique_ptr<comm::Communicator> split;
    std::vector<bench::Case> cases;
    std::int64_t largest = options_.max_bytes;
    if (!options_.pairs) {
      split = split_world(world_, stack.undecorated(), options_.group, group);
      cases = bench::make_cases(options_, group.communicator->size());
      largest = std::ranges::max(cases, {}, &bench::Case::message_bytes).message_bytes();
      bench::require_place_of_fault(faults_, world_.size(), cases.size());
    }
    require_memory(world_, device, stack.backend(), largest);
    warn(group);
    output_.emplace(world_, options_, faults_, device, stack.backend());
    auto outcome = options_.pairs ? measure_pairs(stack) : measure_cases(stack, group, cases, largest);
    const auto sends = [](const auto& one) { return one.operation != comm::Operation::barrier; };
    bench::judge_paths(world_, stack,
                       {.allow_slow_path = options_.allow_slow_path,
                        .measured_world = options_.group == bench::GroupKind::world && std::ranges::any_of(cases, sends),
                        .writer = output_->writer()},
                       outcome);
    if (world_.rank() == 0) {
      output_->finish(outcome);
    }
    const auto code = world_.broadcast(std::as_bytes(std::span(&outcome.code, 1)));
    return *reinterpret_cast<const base::ExitCode*>(code.data());
  }

  /// Of run(): there once something may have been measured.
  [[nodiscard]] std::optional<Output>& output() { return output_; }

 private:
  void warn(const bench::Group& group) const {
    if (world_.oversubscribed()) {
      base::log_warning("a node has more ranks than cores: ranks wait for their turn on a core, and times show that");
    }
    if (group.communicator != nullptr && group.communicator->size() == 1) {
      base::log_warning(
          fmt::format("{}: nothing is sent, times are those of copies at most, and there is no busbw",
                      group.name == "world" ? "there is one rank" : "--group " + group.name + ": every group is one rank"));
    }
  }

  Outcome measure_cases(comm::CommunicatorStack& stack, const bench::Group& group, const std::vector<bench::Case>& cases,
                        std::int64_t largest) {
    std::optional<bench::Memory> memory;
    world_.collectively("the buffers", [&] { memory.emplace(largest, stack.device()); });
    bench::Bench all(world_, stack, options_, faults_);
    std::vector<record::CommRow> rows;
    for (const auto& one : cases) {
      if (const int signal = *train::interrupt_flag(); signal != 0) {  // one rank alone never waits
        throw world::Interrupted(fmt::format("stopped by signal {} after {} of {} rows", signal, rows.size(), cases.size()));
      }
      rows.push_back(all.measure(group, one, *memory));
      if (world_.rank() == 0) {
        output_->add(rows.back());
      }
    }
    return {static_cast<std::int64_t>(rows.size()), bench::results_verdict(rows),
            all.num_wrong() == 0 ? base::ExitCode::good : base::ExitCode::wrong_result};
  }

  Outcome measure_pairs(comm::CommunicatorStack& stack) {
    const auto found =
        bench::search_pairs(world_, stack, options_, faults_, [&](const record::CommRow& row) { output_->add(row); });
    const bool good = found.num_wrong == 0;
    return {static_cast<std::int64_t>(found.rows.size()), good ? found.verdict : bench::wrong_text(found.num_wrong),
            !good             ? base::ExitCode::wrong_result
            : found.found_bad ? base::ExitCode::environment
                              : base::ExitCode::good};
  }

  world::World& world_;
  CommOptions options_;
  base::FaultPlan& faults_;
  std::optional<Output> output_;
};

base::ExitCode run_comm(world::World& world, const CommOptions& options, base::FaultPlan& faults) {
  if (options.pairs && world.size() < 2) {
    base::log_error("--pairs: there is one rank; start two at least, or better two nodes");
    return base::ExitCode::usage;
  }
  Measurement measurement(world, options, faults);
  try {
    return measurement.run();
  } catch (const std::exception& error) {
    auto& output = measurement.output();
    const auto code = base::exit_code_of(error);
    // Before rows such an error is found by all ranks together, with nothing in flight: they can leave in order.
    const bool found_together =
        code == base::ExitCode::usage || code == base::ExitCode::io || code == base::ExitCode::environment;
    const bool orderly =
        !world.failed() && (output ? dynamic_cast<const base::ConfigError*>(&error) != nullptr : found_together);
    const auto text = bench::in_terms_of_options(error.what());
    if (world.rank() == 0 || (!orderly && !is_common(error))) {
      base::log_error(text);
    }
    if (output) {
      output->close_failed(code, text);
    }
    if (orderly) {
      return code;
    }
    end_job(world, error);
  }
}

}  // namespace

void add_comm_command(CLI::App& program, Action& chosen) {
  auto* command =
      program.add_subcommand("comm", "latency and bandwidth of the communicator's collectives, every result checked");
  command->footer(
      "Example: mpirun -np 2 shardmark comm --op all_reduce,all_gather --max 1M -o comm.h5\n"
      "Example: mpirun -np 2 shardmark comm --op send_receive --min 1M --max 16M --factor 2\n"
      "Example: mpirun -np 4 shardmark comm --pairs --format csv\n"
      "algbw and busbw are those of nccl-tests; `shardmark explain COLUMN` says what any column means. The table is short: "
      "--format\n"
      "csv, json, md and the file of -o have every column. count is that of the message: nccl-tests print the count argument "
      "of\n"
      "the call, which for reduce_scatter, all_gather and all_to_all is count / ranks.\n"
      "Every row's result is compared with values computed without messages: exit 8 if one is wrong.\n"
      "Ranks do not compare what they are about to start (comm.check of `run`): that would be timed, too.\n"
      "--pairs ends with exit 5 if a pair is bad; it gives no verdict where ranks share cores, of one pair, or below 128K.");
  auto arguments = std::make_shared<CommArguments>();
  auto& a = *arguments;
  command
      ->add_option("--op", a.operations,
                   "all (default), or of all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_receive, barrier")
      ->delimiter(',');
  command->add_option("--min", a.min_size,
                      "smallest message in bytes, also with K, M or G (or KiB, MiB, GiB), 1024-based (default 8)");
  command->add_option(
      "--max", a.max_size,
      "largest message, always measured: rounded down to whole elements, equally many a rank where an operation has parts "
      "(default 16M over MPI, 64M over NCCL; of --pairs the only one: 4M)");
  command->add_option("--factor", a.factor, "from one size to the next (default 4)");
  command->add_option("--dtype", a.dtypes, "of fp32 (default), bf16, fp64, int64, uint8")->delimiter(',');
  command->add_option("--reduction", a.reductions, "of sum (default), max, min")->delimiter(',');
  command->add_option("--order", a.order, "of additions: fast (default) or ordered, as numerics.reduction");
  command->add_flag("--in-place", a.in_place, "reduce_scatter and all_gather in place only (default: in place and not)");
  command->add_flag("--out-of-place", a.out_of_place, "the same not in place");
  command->add_option("--group", a.group, "world (default); node: ranks of a node; across: one rank per node");
  command->add_option("--iterations", a.iterations, "timed calls (default 128 MiB in all, from 20 to 200; of --pairs 10)");
  command->add_option("--warmup", a.warmup, "calls before them (default 5)");
  command->add_flag(
      "--pairs", a.pairs,
      "name bad pairs of nodes, or of ranks where there is one node: all_reduce in halves, send_receive in pairs");
  command->add_option("--backend", a.backend, "auto (default: nccl on CUDA devices), nccl, mpi");
  command->add_flag("--allow-slow-path", a.allow_slow_path,
                    "over NCCL: accept sockets between nodes that have RDMA; else exit 5 after the rows");
  command->add_option("--deadline", a.deadline, "seconds that ranks wait for each other (default 600)");
  command->add_option("--format", a.format, "table (default), json, csv or md");
  command->add_option("-o,--output", a.output, "a record with table /comm");
  command->add_flag("--overwrite", a.overwrite, "replace what is there");
  for (const auto& [theirs, ours] : {std::pair{"-b", "--min"},
                                     {"-e", "--max"},
                                     {"-f", "--factor"},
                                     {"-n", "--iterations"},
                                     {"-w", "--warmup"},
                                     {"-d", "--dtype"}}) {
    command
        ->add_option_function<std::string>(theirs,
                                           [&a, theirs, ours](const std::string& value) {
                                             a.of_nccl_tests.push_back({theirs, ours, value});
                                           })
        ->group("");  // not in the help
  }
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      CommOptions options;
      try {
        return in_world(
            [&] {
              options = bench::parse_options(*arguments);
              return WorldStart{options.deadline_s, options.deadline_s, bench::faults_of_comm()};
            },
            [&](world::World& world, base::FaultPlan& faults) { return run_comm(world, options, faults); });
      } catch (const base::DeadlineError& error) {  // of the start
        throw base::DeadlineError(bench::in_terms_of_options(error.what()));
      }
    };
  });
}

}  // namespace shardmark::app

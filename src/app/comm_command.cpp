// `shardmark comm`: latency and bandwidth of the communicator's collectives, every result checked.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/record_cells.hpp"
#include "app/bench/pairs.hpp"
#include "app/command.hpp"
#include "app/gather_rows.hpp"
#include "app/in_world.hpp"
#include "app/run_device.hpp"
#include "app/run_facts.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "comm/factory.hpp"
#include "record/writer.hpp"
#include "train/stop_request.hpp"

namespace shardmark::app {
namespace {

using bench::CommArguments;
using bench::CommOptions;

constexpr std::int64_t kHostMaxBytes = std::int64_t{16} << 20;
constexpr std::int64_t kDeviceMaxBytes = std::int64_t{64} << 20;
/// A terminal shows so many rows of --pairs; the other formats and the file have all.
constexpr std::size_t kShownPairs = 40;

/// What rank 0 has to tell in the end.
struct Outcome {
  std::vector<record::CommRow> rows;
  std::string verdict;
  base::ExitCode code = base::ExitCode::good;
};

/// Throws ConfigError for a fault that nothing here plants.
base::FaultPlan faults_of_comm() {
  auto faults = base::FaultPlan::from_environment();
  if (faults.text().empty()) {
    return faults;
  }
  const auto fault = base::parse_fault(faults.text());
  const bool planted = fault.phase == base::FaultPhase::record ||
                       (fault.phase == base::FaultPhase::comm && fault.kind != base::FaultKind::mismatch);
  if (!planted) {
    throw base::ConfigError(
        fmt::format("SHARDMARK_FAULT = \"{}\": `shardmark comm` plants bitflip, kill, stop, exit, throw and "
                    "slow in phase comm, and what a record's writer plants in phase record",
                    faults.text()));
  }
  return faults;
}

/// The file of -o, on rank 0; nothing without it.
class Output {
 public:
  Output(world::World& world, const CommOptions& options, base::FaultPlan& faults, const RunDevice& device,
         const std::string& backend) {
    if (options.output.empty()) {
      return;
    }
    const auto ranks = gather_rows(world, std::vector{make_rank_row(world, device)});
    world.collectively("the record", [&] {
      if (world.rank() != 0) {
        return;
      }
      config::RunConfig config;
      config.preset = config.workload.name = "comm";
      config.technique.name = "none";
      const std::string toml = bench::to_toml(options);
      auto attributes = make_attributes(config, world);
      attributes.config_hash = fmt::format("{:016x}", base::hash_text(toml));
      writer_.emplace(record::WriterOptions{options.output, options.overwrite, &faults}, std::move(attributes), toml,
                      std::vector<record::ConfigKeyRow>{});
      writer_->append_ranks(ranks);
      writer_->append_environment(make_environment(faults.text(), "none", device, backend));
    });
  }

  void append(const record::CommRow& row) {
    if (writer_) {
      writer_->append_comm(std::span(&row, 1));
    }
  }
  void finish(base::ExitCode code, const std::string& error) {
    if (writer_) {
      writer_->finish(code == base::ExitCode::good ? "complete" : "failed", error, static_cast<int>(code));
      writer_.reset();
    }
  }
  /// After a failure: what is there, with its reason. Does not communicate or throw.
  void finish_failed(const std::exception& error) noexcept {
    try {
      finish(base::exit_code_of(error), error.what());
    } catch (const std::exception& other) {
      base::log_error(other.what());
    }
  }

 private:
  std::optional<record::RecordWriter> writer_;
};

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
  if (size == 1 && world.rank() == 0) {
    base::log_warning(fmt::format("--group {}: every group is one rank, nothing is sent", made->name()));
  }
  return made;
}

Outcome measure_cases(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options, base::FaultPlan& faults,
                      Output& output) {
  bench::Group group;
  const auto made = split_world(world, stack.undecorated(), options.group, group);
  const auto cases = bench::make_cases(options, group.communicator->size());
  std::int64_t largest = 0;
  for (const auto& one : cases) {
    largest = std::max(largest, one.message_bytes());
  }
  std::optional<bench::Memory> memory;
  world.collectively("the buffers", [&] { memory.emplace(largest, stack.device()); });
  bench::Bench all(world, stack, options, faults);
  Outcome outcome;
  for (const auto& one : cases) {
    if (const int signal = *train::interrupt_flag(); signal != 0) {  // one rank alone never waits
      throw world::Interrupted(
          fmt::format("stopped by signal {} after {} of {} rows", signal, outcome.rows.size(), cases.size()));
    }
    outcome.rows.push_back(all.measure(group, one, *memory));
    output.append(outcome.rows.back());
  }
  const bool good = all.num_wrong() == 0;
  outcome.verdict = good ? "all results are right" : fmt::format("{} received elements are wrong", all.num_wrong());
  outcome.code = good ? base::ExitCode::good : base::ExitCode::wrong_result;
  return outcome;
}

Outcome measure_pairs(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options, base::FaultPlan& faults,
                      Output& output) {
  const auto found = bench::search_pairs(world, stack, options, faults);
  for (const auto& row : found.rows) {
    output.append(row);
  }
  const bool good = found.num_wrong == 0;
  return {found.rows, good ? found.verdict : fmt::format("{} received elements are wrong", found.num_wrong),
          !good             ? base::ExitCode::wrong_result
          : found.found_bad ? base::ExitCode::environment
                            : base::ExitCode::good};
}

void print(const Outcome& outcome, const CommOptions& options) {
  record::Record record;
  record.comm = outcome.rows;
  if (options.pairs && options.format == analysis::Format::table && record.comm.size() > kShownPairs) {
    base::log_info(
        fmt::format("{} rows of faster pairs are left out: --format csv shows all", record.comm.size() - kShownPairs));
    record.comm.resize(kShownPairs);
  }
  fmt::print("{}", analysis::render(analysis::text_table(record, "comm"), options.format, outcome.verdict));
  std::fflush(stdout);
  const auto text = fmt::format("comm: {} rows, {}", outcome.rows.size(), outcome.verdict);
  outcome.code == base::ExitCode::good ? base::log_info(text) : base::log_error(text);
}

base::ExitCode run_comm(world::World& world, CommOptions options, base::FaultPlan& faults) {
  std::optional<Output> output;
  try {
    if (options.pairs && world.size() < 2) {
      throw base::ConfigError("--pairs: there is one rank; start two at least, or better two nodes");
    }
    const RunDevice device(world);
    auto communicator_options = device.communicator_options({}, nullptr);
    communicator_options.backend = options.backend;
    communicator_options.check = false;
    communicator_options.init_deadline_s = options.deadline_s;
    auto stack = comm::make_communicator(world, communicator_options);
    if (!options.pairs && options.max_bytes == 0) {
      options.max_bytes = std::max(options.min_bytes, stack.backend() == "nccl" ? kDeviceMaxBytes : kHostMaxBytes);
    }
    if (world.rank() == 0 && world.oversubscribed()) {
      base::log_warning("a node has more ranks than cores: ranks wait for their turn on a core, and times show that");
    }
    output.emplace(world, options, faults, device, stack.backend());
    const auto outcome = (options.pairs ? measure_pairs : measure_cases)(world, stack, options, faults, *output);
    if (world.rank() == 0) {
      output->finish(outcome.code, outcome.code == base::ExitCode::good ? "" : outcome.verdict);
      print(outcome, options);
    }
    const auto code = world.broadcast(std::as_bytes(std::span(&outcome.code, 1)));
    return *reinterpret_cast<const base::ExitCode*>(code.data());
  } catch (const std::exception& error) {
    // Options are judged alike by all ranks, and what set-up fails on one rank is known to all, with nothing in flight.
    const bool orderly = !world.failed() && (!output || dynamic_cast<const base::ConfigError*>(&error) != nullptr);
    if (world.rank() == 0 || !is_common(error)) {
      base::log_error(error.what());
    }
    if (output) {
      output->finish_failed(error);
    }
    if (orderly) {
      return base::exit_code_of(error);
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
      "Every row's result is compared with values computed without messages: exit 8 if one is wrong.\n"
      "Ranks do not compare what they are about to start (comm.check of `run`): that would be timed, too.\n"
      "--pairs ends with exit 5 if a pair is bad. `shardmark explain busbw_gb_s` says what a column means.");
  auto arguments = std::make_shared<CommArguments>();
  auto& a = *arguments;
  command
      ->add_option("--op", a.operations,
                   "all (default), or of all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_receive, barrier")
      ->delimiter(',');
  command->add_option("--min", a.min_size, "smallest message in bytes, also with K, M or G, 1024-based (default 8)");
  command->add_option("--max", a.max_size,
                      "largest message (default 16M over MPI, 64M over NCCL; of --pairs the only one: 4M)");
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
  command->add_option("--deadline", a.deadline, "seconds that ranks wait for each other (default 600)");
  command->add_option("--format", a.format, "table (default), json, csv or md");
  command->add_option("-o,--output", a.output, "a record with table /comm");
  command->add_flag("--overwrite", a.overwrite, "replace what is there");
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      CommOptions options;
      return in_world(
          [&] {
            options = bench::parse_options(*arguments);
            return WorldStart{options.deadline_s, options.deadline_s, faults_of_comm()};
          },
          [&](world::World& world, base::FaultPlan& faults) { return run_comm(world, options, faults); });
    };
  });
}

}  // namespace shardmark::app

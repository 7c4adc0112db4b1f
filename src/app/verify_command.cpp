// `shardmark verify`: trains a few steps under every technique and on one rank, and proves that all computed the same.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/table.hpp"
#include "app/command.hpp"
#include "app/in_world.hpp"
#include "app/one_voice.hpp"
#include "app/run_device.hpp"
#include "base/log.hpp"
#include "config/parse.hpp"
#include "train/cell.hpp"
#include "train/proof.hpp"
#include "workloads/table.hpp"

namespace shardmark::app {
namespace {

constexpr std::int64_t kSteps = 10;
constexpr std::int64_t kQuickSteps = 3;

/// One way to train: a technique and what else is set for it.
struct Variant {
  std::string name;
  std::string technique;
  std::vector<std::pair<std::string, std::string>> sets;
};

std::vector<Variant> variants(int ranks, bool quick) {
  std::vector<Variant> all;
  for (const std::string technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    all.push_back({technique, technique, {}});
  }
  if (quick) {
    return all;
  }
  all.push_back({"fsdp reshard false", "fsdp", {{"technique.reshard_after_forward", "false"}}});
  if (ranks >= 4 && ranks % 2 == 0) {
    all.push_back({"fsdp reshard 2", "fsdp", {{"technique.reshard_after_forward", "2"}}});
    all.push_back({"fsdp groups of 2", "fsdp", {{"technique.shard_group", "2"}}});
  }
  return all;
}

class Verification {
 public:
  Verification(world::World& world, config::RunConfig config, base::FaultPlan& faults, bool quick)
      : world_(world), config_(std::move(config)), faults_(faults), quick_(quick) {
    batch_ = config::resolve_batch(config_, world_.size());
    set("measure.warmup_steps", "1");  // ddp's buckets are rebuilt after it
    set("measure.steps", std::to_string((quick_ ? kQuickSteps : kSteps) - 1));
    set("measure.blocks", "1");
    set("data.eval_path", "");
    set("data.global_batch", std::to_string(batch_.global_batch));
  }

  void run() {
    device_.set_reduction("ordered");
    const auto whole = run_alone(0, false);
    std::vector<train::CellResult> others;
    others.push_back(run_alone(1, true));
    others.push_back(run_alone(batch_.micro_batch, true));
    const train::Bounds bounds(whole, others);
    set("data.micro_batch", std::to_string(batch_.micro_batch));
    set("data.accumulation", std::to_string(batch_.accumulation));
    std::optional<train::CellResult> first;
    for (const auto& variant : variants(world_.size(), quick_)) {
      const auto ordered = run_variant(variant, "ordered");
      report(variant.name, "ordered", bounds.compare(ordered));
      report(variant.name, "ordered", ordered.outcome.checks);
      if (first) {
        report(variant.name, "ordered", train::compare_bits(*first, ordered));
      } else {
        first = ordered;
      }
      if (!quick_) {
        const auto fast = run_variant(variant, "fast");
        report(variant.name, "fast", bounds.compare(fast));
        report(variant.name, "fast", fast.outcome.checks);
      }
    }
  }

  [[nodiscard]] const analysis::TextTable& table() const { return table_; }
  /// Equal on all ranks.
  [[nodiscard]] std::int64_t num_failed() const { return num_failed_; }

 private:
  void set(const std::string& key, const std::string& value) { config::set_value(config_, key, value, "verify"); }

  [[nodiscard]] train::CellResult run_cell(const config::RunConfig& config, comm::CommunicatorStack& stack, bool reverse,
                                           base::FaultPlan& faults) {
    return train::run_cell({config, workloads::make_workload, stack, faults, world_.node_size(), reverse});
  }

  /// Every rank trains the whole global batch for itself.
  [[nodiscard]] train::CellResult run_alone(std::int64_t micro_batch, bool reverse) {
    auto config = config_;
    config::set_value(config, "technique.name", "single", "verify");
    config::set_value(config, "data.micro_batch", std::to_string(micro_batch), "verify");
    config::set_value(config, "data.accumulation", "0", "verify");
    auto stack = comm::make_self_communicator(device_.get());
    return run_cell(config, stack, reverse, no_faults_);
  }

  [[nodiscard]] train::CellResult run_variant(const Variant& variant, const std::string& reduction) {
    auto config = config_;
    config::set_value(config, "technique.name", variant.technique, "verify");
    config::set_value(config, "numerics.reduction", reduction, "verify");
    for (const auto& [key, value] : variant.sets) {
      config::set_value(config, key, value, "verify");
    }
    auto options = device_.communicator_options(config, &faults_);
    if (device_.get() == nullptr) {
      options.check = true;  // what is proved is checked, whatever the configuration says
    }
    auto stack = comm::make_communicator(world_, options);
    return run_cell(config, stack, false, faults_);
  }

  /// All ranks agree on the verdict: the table shows rank 0's numbers, and how many ranks failed.
  void report(const std::string& variant, const std::string& reduction, const std::vector<train::Check>& checks) {
    std::vector<std::int64_t> failed;
    for (const auto& check : checks) {
      failed.push_back(check.passed ? 0 : 1);
    }
    const auto all = world_.all_gather(std::as_bytes(std::span(failed)));
    for (std::size_t i = 0; i < checks.size(); ++i) {
      std::int64_t ranks = 0;
      for (const auto& bytes : all) {
        ranks += reinterpret_cast<const std::int64_t*>(bytes.data())[i];
      }
      const auto& check = checks[i];
      table_.rows.push_back({variant, reduction, check.name, check.expected, check.found, check.tolerance,
                             std::string(ranks == 0 ? "passed" : fmt::format("FAILED on {} rank(s)", ranks))});
      num_failed_ += ranks == 0 ? 0 : 1;
    }
  }

  world::World& world_;
  config::RunConfig config_;
  RunDevice device_{world_};
  base::FaultPlan& faults_;
  base::FaultPlan no_faults_;  // planted faults are for what is proved, not for what it is held to
  bool quick_;
  config::BatchPlan batch_;
  std::int64_t num_failed_ = 0;
  analysis::TextTable table_{{"technique", "reduction", "check", "expected", "found", "tolerance", "result"}, {}};
};

base::ExitCode verify(world::World& world, config::RunConfig config, base::FaultPlan& faults, bool quick,
                      analysis::Format format) {
  try {
    Verification verification(world, std::move(config), faults, quick);
    verification.run();
    const bool passed = verification.num_failed() == 0;
    if (world.rank() == 0) {
      const std::string verdict = passed ? "passed" : "failed";
      fmt::print("{}", analysis::render(verification.table(), format, verdict));
      let_results_pass();
      base::log_info(fmt::format("verify: {} proofs, {} failed", verification.table().rows.size(), verification.num_failed()));
    }
    world.barrier();
    return passed ? base::ExitCode::good : base::ExitCode::wrong_result;
  } catch (const std::exception& error) {
    // Configuration and data are judged alike by all ranks, with nothing in flight.
    const bool orderly = dynamic_cast<const base::ConfigError*>(&error) != nullptr && !world.failed();
    if (world.rank() == 0 || !is_common(error)) {
      base::log_error(error.what());
    }
    if (orderly) {
      return base::exit_code_of(error);
    }
    end_job(world, error);
  }
}

}  // namespace

void add_verify_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("verify", "train a few steps under every technique and prove that all agree");
  command->footer("Example: mpirun -np 2 shardmark verify mlp-digits --quick");
  auto arguments = std::make_shared<CaseArguments>();
  auto quick = std::make_shared<bool>(false);
  auto format = std::make_shared<std::string>("table");
  add_case_options(*command, *arguments);
  command->add_flag("--quick", *quick, "three steps and exact sums only: for the head of a batch script");
  command->add_option("--format", *format, "table, json, csv or md");
  command->callback([&chosen, arguments, quick, format] {
    chosen = [arguments, quick, format] {
      const auto parsed = analysis::parse_format(*format);
      return in_world(*arguments, [&](world::World& world, config::RunConfig config, base::FaultPlan& faults) {
        return verify(world, std::move(config), faults, *quick, parsed);
      });
    };
  });
}

}  // namespace shardmark::app

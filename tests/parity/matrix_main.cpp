// Every technique under every combination of accumulation, clipping, checkpointing, precision, overlap and order of sums, all
// cells of one rank count in one process:
//   matrix PRESET pairwise|full [KEY=VALUE ...]
// Each cell is held to `single` by the bounds of design section 4, to the formulas of payload and persistent memory by the
// run's own checks, and under `ordered` to ddp of the same accumulation, clipping and precision bit by bit.
// pairwise: every pair of values of two dimensions occurs in some cell. Exit 1 names each failed check of each cell.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/random.hpp"
#include "config/parse.hpp"
#include "device/cpu_facts.hpp"
#include "device/memory_ledger.hpp"
#include "train/cell.hpp"
#include "train/proof.hpp"
#include "workloads/table.hpp"
#include "world/world.hpp"

namespace {

using namespace shardmark;

using Sets = std::vector<std::pair<std::string, std::string>>;
struct Value {
  std::string name;
  Sets sets;
};
using Dimension = std::vector<Value>;
using Cell = std::vector<std::size_t>;  // one value of each dimension

enum : std::size_t { kTechnique, kAccumulation, kClipping, kCheckpointing, kPrecision, kOverlap, kReduction };

std::vector<Dimension> dimensions(int ranks) {
  Dimension techniques{
      {"ddp", {{"technique.name", "ddp"}}},
      {"zero1", {{"technique.name", "zero1"}}},
      {"zero2", {{"technique.name", "zero2"}}},
      {"zero2 offloaded", {{"technique.name", "zero2"}, {"technique.offload", "optimizer"}}},
      {"zero3", {{"technique.name", "zero3"}}},
      {"zero3 persistent", {{"technique.name", "zero3"}, {"technique.persistence_threshold", "100"}}},
      {"fsdp", {{"technique.name", "fsdp"}, {"technique.prefetch", "2"}}},
      {"fsdp keep", {{"technique.name", "fsdp"}, {"technique.reshard_after_forward", "false"}}},
      {"fsdp as fsdp2", {{"technique.name", "fsdp"}, {"technique.profile", "fsdp2"}}},
      {"zero3 as deepspeed",
       {{"technique.name", "zero3"}, {"technique.profile", "deepspeed"}, {"technique.persistence_threshold", "0"}}},
  };
  if (ranks % 2 == 0) {
    techniques.push_back({"fsdp hybrid", {{"technique.name", "fsdp"}, {"technique.shard_group", std::to_string(ranks / 2)}}});
  }
  if (ranks == 4) {
    techniques.push_back({"fsdp parts of 2", {{"technique.name", "fsdp"}, {"technique.reshard_after_forward", "2"}}});
  }
  return {
      techniques,
      {{"m1", {{"data.accumulation", "1"}}},
       {"m3 sync", {{"data.accumulation", "3"}, {"technique.accumulation", "sync"}}},
       {"m3 no_sync", {{"data.accumulation", "3"}, {"technique.accumulation", "no_sync"}}}},
      // The norms of these models are far above 0.01, so that clipping acts in every step.
      {{"no clipping", {{"optimizer.clip_norm", "0"}}}, {"clipping", {{"optimizer.clip_norm", "0.01"}}}},
      {{"kept", {{"model.activation_checkpointing", "false"}}}, {"recomputed", {{"model.activation_checkpointing", "true"}}}},
      {{"fp32", {}},
       {"bf16 compute", {{"precision.compute", "bf16"}}},
       {"bf16 compute and reduce", {{"precision.compute", "bf16"}, {"precision.reduce", "bf16"}}},
       {"pure bf16",
        {{"precision.parameters", "bf16"},
         {"precision.compute", "bf16"},
         {"precision.reduce", "bf16"},
         {"precision.state", "bf16"},
         {"precision.frozen", "bf16"}}}},
      {{"overlap", {{"technique.overlap", "true"}}}, {"in turn", {{"technique.overlap", "false"}}}},
      {{"ordered", {{"numerics.reduction", "ordered"}}}, {"fast", {{"numerics.reduction", "fast"}}}},
  };
}

std::vector<Cell> all_cells(const std::vector<Dimension>& dims) {
  std::vector<Cell> cells{{}};
  for (const auto& dimension : dims) {
    std::vector<Cell> longer;
    for (const auto& cell : cells) {
      for (std::size_t value = 0; value < dimension.size(); ++value) {
        longer.push_back(cell);
        longer.back().push_back(value);
      }
    }
    cells = std::move(longer);
  }
  return cells;
}

using Pair = std::array<std::size_t, 4>;
std::vector<Pair> pairs_of(const Cell& cell) {
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < cell.size(); ++a) {
    for (std::size_t b = a + 1; b < cell.size(); ++b) {
      pairs.push_back({a, cell[a], b, cell[b]});
    }
  }
  return pairs;
}

/// Greedy: of some random cells the one that covers most pairs not yet covered, until none is left. The same on all ranks.
std::vector<Cell> covering_cells(const std::vector<Dimension>& dims) {
  const auto all = all_cells(dims);
  std::set<Pair> missing;
  for (const auto& cell : all) {
    for (const auto& pair : pairs_of(cell)) {
      missing.insert(pair);
    }
  }
  const base::RandomStream random(1, "cells");
  std::uint64_t drawn = 0;
  std::vector<Cell> chosen;
  while (!missing.empty()) {
    const Cell* best = nullptr;
    std::ptrdiff_t most = 0;
    for (int candidate = 0; candidate < 200; ++candidate) {
      const auto& cell = all[static_cast<std::size_t>(random.uniform(drawn++) * static_cast<float>(all.size() - 1))];
      const auto pairs = pairs_of(cell);
      const auto covered = std::ranges::count_if(pairs, [&](const auto& pair) { return missing.contains(pair); });
      if (covered > most) {
        most = covered;
        best = &cell;
      }
    }
    if (best == nullptr) {
      continue;
    }
    chosen.push_back(*best);
    for (const auto& pair : pairs_of(*best)) {
      missing.erase(pair);
    }
  }
  return chosen;
}

class Matrix {
 public:
  Matrix(world::World& world, const std::string& preset, const std::vector<std::string>& sets)
      : world_(world), dims_(dimensions(world.size())), stack_(comm::make_communicator(world, {})) {
    config::LoadRequest request;
    request.preset_or_file = preset;
    request.preset_dir = config::find_preset_dir();
    // One warm-up step: ddp's buckets are rebuilt after it, and units are gathered ahead from the second on.
    request.sets = {"data.micro_batch=0", "measure.warmup_steps=1", "measure.steps=2", "measure.blocks=1"};
    request.sets.insert(request.sets.end(), sets.begin(), sets.end());
    if (std::ranges::none_of(sets, [](const auto& set) { return set.starts_with("data.global_batch="); })) {
      request.sets.emplace_back("data.global_batch=36");
    }
    config_ = config::load_config(request);
  }

  void run(const Cell& cell) {
    const std::string name = name_of(cell);
    train::CellResult found;
    try {
      found = train_cell(cell);
    } catch (const std::exception& error) {
      throw std::runtime_error(name + ": " + error.what());
    }
    report(name, found.outcome.checks);
    report(name, bounds_of(cell).compare(found));
    if (cell[kReduction] == 0) {
      report(name, train::compare_bits(reference_of(cell), found));
    }
  }

  [[nodiscard]] std::size_t num_checks() const { return num_checks_; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const std::vector<Dimension>& dims() const { return dims_; }

 private:
  struct Alone {
    train::CellResult whole;
    std::vector<train::CellResult> others;
    std::unique_ptr<train::Bounds> bounds;
  };

  [[nodiscard]] std::string name_of(const Cell& cell) const {
    std::string name = fmt::format("{} rank(s)", world_.size());
    for (std::size_t d = 0; d < cell.size(); ++d) {
      name += ", " + dims_[d][cell[d]].name;
    }
    return name;
  }

  [[nodiscard]] config::RunConfig config_of(const Cell& cell) const {
    auto config = config_;
    for (std::size_t d = 0; d < cell.size(); ++d) {
      for (const auto& [key, value] : dims_[d][cell[d]].sets) {
        config::set_value(config, key, value, "matrix");
      }
    }
    return config;
  }

  [[nodiscard]] train::CellResult train_cell(const Cell& cell) {
    return train::run_cell({config_of(cell), workloads::make_workload, stack_, faults_, world_.node_size()});
  }

  /// ddp with exact sums of the same accumulation, clipping and precision.
  const train::CellResult& reference_of(const Cell& cell) {
    const Cell reference{0, cell[kAccumulation], cell[kClipping], 0, cell[kPrecision], 0, 0};
    const auto known = references_.find(reference);
    return known != references_.end() ? known->second : references_.emplace(reference, train_cell(reference)).first->second;
  }

  const train::Bounds& bounds_of(const Cell& cell) {
    auto& alone = alone_[{cell[kAccumulation] == 0, cell[kClipping], cell[kPrecision]}];
    if (!alone.bounds) {
      auto stack = comm::make_self_communicator();
      const auto train_alone = [&](const std::string& micro_batch, bool reverse) {
        auto config = config_of({0, 0, cell[kClipping], 0, cell[kPrecision], 0, 1});
        config::set_value(config, "technique.name", "single", "matrix");
        config::set_value(config, "data.accumulation", "0", "matrix");
        config::set_value(config, "data.micro_batch", micro_batch, "matrix");
        return train::run_cell({config, workloads::make_workload, stack, faults_, 1, reverse});
      };
      alone.whole = train_alone("0", false);
      const auto batch = config::resolve_batch(config_of(cell), world_.size());
      alone.others.push_back(train_alone("1", true));
      alone.others.push_back(train_alone(std::to_string(batch.micro_batch), true));
      alone.bounds = std::make_unique<train::Bounds>(alone.whole, alone.others);
    }
    return *alone.bounds;
  }

  void report(const std::string& cell, const std::vector<train::Check>& checks) {
    for (const auto& check : checks) {
      ++num_checks_;
      if (!check.passed) {
        failed_ = true;
        std::cerr << fmt::format("rank {}: {}: {}: expected {}, found {}, tolerance {}\n", world_.rank(), cell, check.name,
                                 check.expected, check.found, check.tolerance);
      }
    }
  }

  world::World& world_;
  std::vector<Dimension> dims_;
  comm::CommunicatorStack stack_;
  base::FaultPlan faults_;
  config::RunConfig config_;
  std::map<Cell, train::CellResult> references_;
  std::map<std::tuple<bool, std::size_t, std::size_t>, Alone> alone_;
  std::size_t num_checks_ = 0;
  bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || (std::string(argv[2]) != "pairwise" && std::string(argv[2]) != "full")) {
    std::cerr << "usage: matrix PRESET pairwise|full [KEY=VALUE ...]\n";
    return 2;
  }
  device::install_memory_ledger();
  device::set_compute_threads(1);
  world::World world({60, 120});
  base::set_log_identity(world.rank(), world.size(), world.host());
  try {
    Matrix matrix(world, argv[1], {argv + 3, argv + argc});
    const auto cells = std::string(argv[2]) == "full" ? all_cells(matrix.dims()) : covering_cells(matrix.dims());
    for (const auto& cell : cells) {
      matrix.run(cell);
    }
    if (world.rank() == 0) {
      std::cout << fmt::format("{} on {} rank(s): {} cells, {} checks on this rank{}\n", argv[1], world.size(), cells.size(),
                               matrix.num_checks(), matrix.failed() ? ", some FAILED" : "");
    }
    world.collectively("the checks", [&] {
      if (matrix.failed()) {
        throw base::NumericsError("checks failed");
      }
    });
    return 0;
  } catch (const std::exception& error) {
    base::log_error(error.what());
    const auto code = base::exit_code_of(error);
    world.report_failure(code, error.what());
    world.abort(code);
  }
}

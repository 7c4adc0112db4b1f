#pragma once
// What `shardmark comm` is asked to measure: its options as texts, judged all at once. Knows nothing of ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "comm/communicator.hpp"

namespace shardmark::app::bench {

/// An option of nccl-tests, what means the same here, and its value.
struct ForeignOption {
  std::string option;
  std::string ours;
  std::string value;
};

/// As typed; "" and empty lists: not given, so that --pairs can refuse what it has no use for.
struct CommArguments {
  std::vector<std::string> operations;
  std::vector<std::string> dtypes;
  std::vector<std::string> reductions;
  std::string order = "fast";
  std::string group;
  std::string min_size;
  std::string max_size;
  std::string factor;
  std::string iterations;
  std::string warmup = "5";
  std::string backend = "auto";
  std::string deadline = "600";
  std::string format = "table";
  std::string output;
  bool in_place = false;
  bool out_of_place = false;
  bool pairs = false;
  bool overwrite = false;
  bool allow_slow_path = false;
  std::vector<ForeignOption> of_nccl_tests;  // refused with a hint
};

enum class GroupKind : std::uint8_t { world, node, across };

struct CommOptions {
  std::vector<comm::Operation> operations;
  std::vector<base::DType> dtypes;
  std::vector<comm::Reduction> reductions;
  comm::SumOrder order = comm::SumOrder::fast;
  GroupKind group = GroupKind::world;
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = 0;  // 0: by backend
  std::int64_t factor = 4;
  std::int64_t iterations = 0;  // 0: by size
  std::int64_t warmup = 5;
  bool in_place = true;  // of reduce_scatter and all_gather; at least one of the two
  bool out_of_place = true;
  bool pairs = false;
  std::string backend = "auto";
  bool allow_slow_path = false;  // sockets between nodes that have RDMA
  double deadline_s = 600;
  analysis::Format format = analysis::Format::table;
  std::string output;  // "": no file
  bool overwrite = false;
};

/// Throws ConfigError naming every problem with what is accepted, and for --pairs every option that means nothing to it.
[[nodiscard]] CommOptions parse_options(const CommArguments& arguments);

/// An error's text in which keys of `run` (comm.deadline_s, comm.backend, comm.allow_slow_path, output.path, output.overwrite)
/// are named as the options of `comm` that stand for them.
[[nodiscard]] std::string in_terms_of_options(std::string text);

/// The options in effect as TOML, for a record.
[[nodiscard]] std::string to_toml(const CommOptions& options);

}  // namespace shardmark::app::bench

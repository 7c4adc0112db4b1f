#pragma once
// What `shardmark comm` is asked to measure: its options as texts, judged all at once. Knows nothing of ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/table.hpp"
#include "comm/communicator.hpp"

namespace shardmark::app::bench {

/// As typed; the defaults are those of --help.
struct CommArguments {
  std::vector<std::string> operations{"all"};
  std::vector<std::string> dtypes{"fp32"};
  std::vector<std::string> reductions{"sum"};
  std::string order = "fast";
  std::string group = "world";
  std::string min_size = "8";
  std::string max_size;  // "": by backend
  std::string factor = "4";
  std::string iterations;  // "": by size
  std::string warmup = "5";
  std::string backend = "auto";
  std::string deadline = "600";
  std::string format = "table";
  std::string output;
  bool in_place = false;
  bool out_of_place = false;
  bool pairs = false;
  bool overwrite = false;
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
  double deadline_s = 600;
  analysis::Format format = analysis::Format::table;
  std::string output;  // "": no file
  bool overwrite = false;
};

/// Throws ConfigError naming every problem with what is accepted.
[[nodiscard]] CommOptions parse_options(const CommArguments& arguments);

/// The options in effect as TOML, for a record.
[[nodiscard]] std::string to_toml(const CommOptions& options);

}  // namespace shardmark::app::bench

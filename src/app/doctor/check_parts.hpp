#pragma once
// The parts of `judge`, and how they turn the findings of many ranks into one line.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/doctor/checks.hpp"

namespace shardmark::app::doctor {

struct Finding {
  Result result = Result::pass;
  std::string found;
  std::string remedy = "";
};

/// One line for all ranks: the gravest result; what was found, once if all ranks say the same, else "ranks 0-2: A; rank 3: B";
/// the remedies of what is wrong.
[[nodiscard]] Line combine(const std::string& check, const std::vector<RankFacts>& ranks,
                           const std::function<Finding(const RankFacts&)>& judge_one);

/// "rank 3", "ranks 0-2, 5".
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);
/// "1 core", "2 cores".
[[nodiscard]] std::string count_text(std::int64_t count, const std::string& thing);
/// Ranks by node, in order of nodes.
[[nodiscard]] std::vector<std::vector<const RankFacts*>> by_node(const std::vector<RankFacts>& ranks);
/// The distinct cores of some processors, ascending.
[[nodiscard]] std::vector<int> cores_of(const std::vector<Cpu>& cpus);
/// The variable's value on this rank, "" if it is not set.
[[nodiscard]] std::string variable(const RankFacts& rank, const std::string& name);

void check_launch(const JobFacts& job, std::vector<Line>& lines);
void check_cores(const JobFacts& job, std::vector<Line>& lines);
void check_devices(const JobFacts& job, std::vector<Line>& lines);
void check_libraries(const JobFacts& job, std::vector<Line>& lines);
void check_storage(const JobFacts& job, std::vector<Line>& lines);
void check_host(const JobFacts& job, std::vector<Line>& lines);
void check_network(const JobFacts& job, std::vector<Line>& lines);
void check_environment(const JobFacts& job, std::vector<Line>& lines);

}  // namespace shardmark::app::doctor

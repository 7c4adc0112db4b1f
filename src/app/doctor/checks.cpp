#include "app/doctor/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/doctor/check_parts.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

constexpr std::size_t kMaxSides = 4;  // further differing texts are counted, so that a line of a large job stays readable

}  // namespace

std::string_view name_of(Result result) {
  switch (result) {
    case Result::skip: return "skip";
    case Result::pass: return "pass";
    case Result::warn: return "warn";
    case Result::fail: break;
  }
  return "fail";
}

std::vector<Line> judge(const JobFacts& job) {
  SM_CHECK(!job.ranks.empty(), "a job has at least one rank");
  std::vector<Line> lines;
  check_launch(job, lines);
  check_cores(job, lines);
  check_devices(job, lines);
  check_libraries(job, lines);
  check_storage(job, lines);
  check_host(job, lines);
  check_network(job, lines);
  check_environment(job, lines);
  return lines;
}

Result worst(const std::vector<Line>& lines) {
  Result all = Result::skip;
  for (const auto& line : lines) {
    all = std::max(all, line.result);
  }
  return all;
}

Line combine(const std::string& check, const std::vector<RankFacts>& ranks,
             const std::function<Finding(const RankFacts&)>& judge_one) {
  Line line{check, Result::skip, "", ""};
  std::vector<std::string> texts;  // in order of their first rank
  std::map<std::string, std::vector<int>> said_by;
  std::vector<std::string> remedies;
  for (const auto& rank : ranks) {
    const Finding finding = judge_one(rank);
    line.result = std::max(line.result, finding.result);
    if (!said_by.contains(finding.found)) {
      texts.push_back(finding.found);
    }
    said_by[finding.found].push_back(rank.world_rank);
    if (!finding.remedy.empty() && std::ranges::find(remedies, finding.remedy) == remedies.end()) {
      remedies.push_back(finding.remedy);
    }
  }
  line.remedy = base::join(remedies, "; ");
  if (texts.size() == 1) {
    line.found = texts.front();
    return line;
  }
  std::vector<std::string> sides;
  for (std::size_t i = 0; i < std::min(texts.size(), kMaxSides); ++i) {
    sides.push_back(fmt::format("{}: {}", ranks_text(said_by[texts[i]]), texts[i]));
  }
  if (texts.size() > kMaxSides) {
    sides.push_back(fmt::format("{} further texts", texts.size() - kMaxSides));
  }
  line.found = base::join(sides, "; ");
  return line;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    parts.push_back(last > i ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]));
    i = last;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::join(parts, ", ");
}

std::string count_text(std::int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::vector<std::vector<const RankFacts*>> by_node(const std::vector<RankFacts>& ranks) {
  std::map<int, std::vector<const RankFacts*>> nodes;
  for (const auto& rank : ranks) {
    nodes[rank.node].push_back(&rank);
  }
  std::vector<std::vector<const RankFacts*>> all;
  for (auto& [node, members] : nodes) {
    all.push_back(std::move(members));
  }
  return all;
}

std::vector<int> cores_of(const std::vector<Cpu>& cpus) {
  std::set<int> cores;
  for (const auto& cpu : cpus) {
    cores.insert(cpu.core);
  }
  return {cores.begin(), cores.end()};
}

std::string variable(const RankFacts& rank, const std::string& name) {
  for (const auto& [key, value] : rank.environment) {
    if (key == name) {
      return value;
    }
  }
  return "";
}

}  // namespace shardmark::app::doctor

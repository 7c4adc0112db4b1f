#include "analysis/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "analysis/compare.hpp"
#include "base/text.hpp"

namespace shardmark::analysis {
namespace {

using record::Record;

constexpr std::array<std::string_view, 5> kTechniques{"ddp", "fsdp", "zero1", "zero2", "zero3"};

// Ratios within a quarter of each other tell the same about a technique.
constexpr double kAlike = 1.25;

/// Throughput of one technique on one side.
struct Speed {
  double median = 0;
  double low = 0;
  double high = 0;
};

struct Side {
  std::map<std::string, std::vector<const Record*>> records;  // by technique
  std::map<std::string, Speed> speeds;
};

struct Group {
  Side ours;
  Side peers;
  const Record* first = nullptr;  // what the others must be like
};

/// "" or why a record of ours does not stand for the peer of its technique. Under fsdp2 ddp is what it is by itself, which is
/// DistributedDataParallel's buckets.
std::string wrong_profile(const Record& record) {
  const std::string& technique = record.attributes.technique;
  std::string profile;
  for (const auto& row : record.config_keys) {
    if (row.key.str() == "technique.profile") {
      profile = row.value.str();
    }
  }
  if (technique == "ddp") {
    return profile == "\"native\"" || profile == "\"fsdp2\"" ? "" : "technique.profile is neither native nor fsdp2";
  }
  const std::string wanted = technique == "fsdp" ? "fsdp2" : "deepspeed";
  return profile == fmt::format("\"{}\"", wanted) ? "" : "technique.profile is not " + wanted;
}

/// "" or why a record takes no part.
std::string unusable(const Record& record) {
  if (std::ranges::find(kTechniques, record.attributes.technique) == kTechniques.end()) {
    return fmt::format("technique {} has no peer", record.attributes.technique);
  }
  const std::string why = disqualified(record);
  return why.empty() && peer_of(record).empty() ? wrong_profile(record) : why;
}

Speed speed_of(const std::vector<const Record*>& records) {
  std::vector<double> rates;
  for (const Record* record : records) {
    rates.push_back(record->summary.front().samples_per_s);
  }
  std::ranges::sort(rates);
  const std::size_t half = rates.size() / 2;
  Speed speed{rates.size() % 2 == 1 ? rates[half] : (rates[half - 1] + rates[half]) / 2, rates.front(), rates.back()};
  if (records.size() == 1) {
    // One run's own spread over its blocks; without it the number stands alone.
    const auto& summary = records.front()->summary.front();
    speed.low = summary.throughput_low <= speed.median ? summary.throughput_low : speed.median;
    speed.high = summary.throughput_high >= speed.median ? summary.throughput_high : speed.median;
  }
  return speed;
}

bool apart(const Speed& a, const Speed& b) {
  return a.high < b.low || b.high < a.low;
}

std::int64_t place_of(const std::string& technique, const Side& side, const std::vector<std::string>& shared) {
  return 1 + std::ranges::count_if(shared, [&](const std::string& other) {
           return side.speeds.at(other).median > side.speeds.at(technique).median;
         });
}

/// "yes", "no" or "undecided": of the interval of our ratio to ddp over the peer's.
std::string ratios_agree(const std::string& technique, const Group& group) {
  const auto bounds = [&](const Side& side) {
    const Speed& mine = side.speeds.at(technique);
    const Speed& ddp = side.speeds.at("ddp");
    return technique == "ddp" ? std::pair(1.0, 1.0) : std::pair(mine.low / ddp.high, mine.high / ddp.low);
  };
  const auto ours = bounds(group.ours);
  const auto peers = bounds(group.peers);
  const double low = ours.first / peers.second;
  const double high = ours.second / peers.first;
  if (low >= 1 / kAlike && high <= kAlike) {
    return "yes";
  }
  return low > 1 || high < 1 ? "no" : "undecided";
}

std::string ranking(const Group& group, const std::vector<std::string>& shared) {
  std::size_t decided = 0;
  std::vector<std::string> turned;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    for (std::size_t j = i + 1; j < shared.size(); ++j) {
      const auto order = [&](const Side& side) -> std::optional<bool> {
        const Speed& a = side.speeds.at(shared[i]);
        const Speed& b = side.speeds.at(shared[j]);
        return apart(a, b) ? std::optional(a.median > b.median) : std::nullopt;
      };
      const auto ours = order(group.ours);
      const auto peers = order(group.peers);
      if (!ours || !peers) {
        continue;
      }
      ++decided;
      if (*ours != *peers) {
        turned.push_back(fmt::format("{} before {} here only", shared[*ours ? i : j], shared[*ours ? j : i]));
      }
    }
  }
  if (decided == 0) {
    return "undecided";
  }
  return turned.empty() ? fmt::format("ranking transfers ({} pairs apart on both sides)", decided)
                        : "ranking does not transfer: " + base::join(turned, ", ");
}

std::vector<std::string> shared_techniques(const Group& group) {
  std::vector<std::string> shared;
  for (const auto technique : kTechniques) {
    const std::string name(technique);
    if (group.ours.records.contains(name) && group.peers.records.contains(name)) {
      shared.push_back(name);
    }
  }
  return shared;
}

void judge(const std::pair<std::string, std::int64_t>& key, Group& group, Transfer& result) {
  const auto shared = shared_techniques(group);
  const std::string name = fmt::format("{} on {} ranks", key.first, key.second);
  if (shared.size() < 2 || shared.front() != "ddp") {
    result.reasons.push_back(name + ": both sides need ddp and one more technique, the same");
    return;
  }
  for (const auto& technique : shared) {
    group.ours.speeds[technique] = speed_of(group.ours.records.at(technique));
    group.peers.speeds[technique] = speed_of(group.peers.records.at(technique));
  }
  const std::string verdict = ranking(group, shared);
  std::map<std::string, std::vector<std::string>> by_answer;
  for (const auto& technique : shared) {
    const std::string agree = ratios_agree(technique, group);
    by_answer[agree].push_back(technique);
    const auto ratio = [&](const Side& side) { return side.speeds.at(technique).median / side.speeds.at("ddp").median; };
    result.table.rows.push_back({key.first, key.second, technique, peer_of(*group.peers.records.at(technique).front()),
                                 place_of(technique, group.ours, shared), place_of(technique, group.peers, shared),
                                 ratio(group.ours), ratio(group.peers), agree, verdict});
  }
  std::string ratios = "ratios to ddp agree";
  if (by_answer.contains("no") || by_answer.contains("undecided")) {
    std::vector<std::string> parts;
    for (const auto& [answer, words] : {std::pair("no", "differ"), std::pair("undecided", "are undecided")}) {
      if (by_answer.contains(answer)) {
        parts.push_back(fmt::format("{}: {}", words, base::join(by_answer[answer], ", ")));
      }
    }
    ratios = "ratios to ddp " + base::join(parts, "; ");
  }
  result.verdict += fmt::format("{}{}: {}; {}", result.verdict.empty() ? "" : ". ", name, verdict, ratios);
}

}  // namespace

Transfer transfer(const std::vector<Record>& records) {
  Transfer result;
  result.table.columns = {"preset",    "world_size",      "technique",  "peer",         "rank_shardmark",
                          "rank_peer", "ratio_shardmark", "ratio_peer", "ratios_agree", "transfer"};
  std::map<std::pair<std::string, std::int64_t>, Group> groups;
  for (const auto& record : records) {
    std::string why = unusable(record);
    if (why.empty()) {
      auto& group = groups[{record.attributes.preset, record.attributes.world_size}];
      group.first = group.first == nullptr ? &record : group.first;
      const auto differences = differing_keys(*group.first, record);
      if (differences.empty()) {
        (peer_of(record).empty() ? group.ours : group.peers).records[record.attributes.technique].push_back(&record);
        continue;
      }
      why = fmt::format("unlike {}: {}", group.first->path, base::join(differences, ", "));
    }
    result.reasons.push_back(fmt::format("{}: {}", record.path, why));
  }
  for (auto& [key, group] : groups) {
    judge(key, group, result);
  }
  return result;
}

}  // namespace shardmark::analysis

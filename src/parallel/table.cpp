// The techniques: one line each.

#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "parallel/flat_strategy.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {
namespace {

constexpr std::array<std::pair<std::string_view, MakePolicy>, 6> kTechniques{{
    {"single", single_policy},
    {"ddp", ddp_policy},
    {"zero1", zero1_policy},
    {"zero2", zero2_policy},
    {"zero3", zero3_policy},
    {"fsdp", fsdp_policy},
}};

}  // namespace

Policy make_policy(const std::string& technique, const StrategyOptions& options, std::int64_t ranks) {
  for (const auto& [name, policy] : kTechniques) {
    if (name == technique) {
      return policy(options, ranks);
    }
  }
  throw base::ConfigError("technique.name = \"" + technique + "\": accepted are " + base::join(technique_names(), ", "));
}

std::unique_ptr<Strategy> make_strategy(const std::string& technique, const StrategyOptions& options,
                                        comm::Communicator& communicator) {
  return std::make_unique<FlatStrategy>(options, make_policy(technique, options, communicator.size()), communicator);
}

std::vector<std::string> technique_names() {
  std::vector<std::string> names;
  for (const auto& [name, make_policy] : kTechniques) {
    names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> unused_keys(const std::string& technique) {
  std::vector<std::string> keys;
  if (technique != "fsdp") {
    keys = {"reshard_after_forward", "shard_group"};
  }
  if (technique != "fsdp" && technique != "zero3") {
    keys.insert(keys.end(), {"prefetch", "persistence_threshold", "live_parameters_mb"});
  }
  return keys;
}

}  // namespace shardmark::parallel

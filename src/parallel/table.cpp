// The techniques: one line each.

#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "parallel/replicated_strategy.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {
namespace {

using Make = std::unique_ptr<Strategy> (*)(const StrategyOptions&, comm::Communicator&);

template <typename Kind>
std::unique_ptr<Strategy> make(const StrategyOptions& options, comm::Communicator& communicator) {
  return std::make_unique<Kind>(options, communicator);
}

constexpr std::array<std::pair<std::string_view, Make>, 2> kTechniques{{
    {"single", make<ReplicatedStrategy>},
    {"ddp", make<ReplicatedStrategy>},
}};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const std::string& technique, const StrategyOptions& options,
                                        comm::Communicator& communicator) {
  for (const auto& [name, maker] : kTechniques) {
    if (name == technique) {
      return maker(options, communicator);
    }
  }
  throw base::ConfigError("technique.name = \"" + technique + "\": accepted are " + base::join(technique_names(), ", "));
}

std::vector<std::string> technique_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kTechniques) {
    names.emplace_back(name);
  }
  return names;
}

}  // namespace shardmark::parallel

#include "table.hpp"

#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::workloads {

std::span<const train::WorkloadEntry> table() {
  static const std::vector<train::WorkloadEntry> entries{
      {"lm", "decoder-only language model (Llama) on rows of tokens", make_lm},
      {"mlp", "multi-layer perceptron on vectors: regression or classification", make_mlp},
      {"transformer", "post-norm transformer on vectors, sequences of length 1: classification", make_transformer},
      {"two-tower", "recommender of two towers on ratings: binary classification, dense gradients", make_two_tower},
      {"retinanet", "object detector (ResNet, feature pyramid) on pictures with boxes", make_retinanet},
  };
  return entries;
}

std::unique_ptr<train::Workload> make_workload(const config::RunConfig& config) {
  std::vector<std::string> names;
  for (const auto& entry : table()) {
    if (entry.name == config.workload.name) {
      return entry.make(config);
    }
    names.push_back(entry.name);
  }
  throw base::ConfigError("workload.name = \"" + config.workload.name + "\": accepted are " + base::join(names, ", "));
}

}  // namespace shardmark::workloads

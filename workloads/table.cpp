#include "table.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/print.hpp"

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
  for (const auto& [key, folder] : {std::pair{"model.checkpoint", config.model.checkpoint},
                                    std::pair{"model.lora.checkpoint", config.model.lora.checkpoint}}) {
    std::error_code failure;
    if (!folder.empty() && !std::filesystem::is_directory(folder, failure)) {
      throw base::ConfigError(std::string(key) + " = " + config::quoted(folder) + ": no such folder");
    }
  }
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

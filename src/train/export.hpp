#pragma once
// Named tensors to and from safetensors files. Rank 0 writes; every rank may read.

#include <memory>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "model/parameter.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::train {

/// Writes tensors in the given order, as fp32 (counters as int64), aside, then renames. Makes the folder. Throws IoError.
void write_tensors(const std::string& path, const std::vector<parallel::NamedTensor>& tensors);

/// Where first values lie; "" = nowhere.
struct WeightFolders {
  std::string model;
  std::string adapter;  // adapter_model.safetensors; without one adapters start as they declare
};
[[nodiscard]] WeightFolders weight_folders(const config::RunConfig& config);

/// First values from a folder's checkpoint (see weights/checkpoint.hpp): every parameter and every fp32 buffer of the model
/// must be there with its shape as F32 or BF16, and nothing else but its counters and what a parameter is also named. Fills the
/// buffers at once. Throws ConfigError listing everything missing, unknown, of the wrong shape or, stored twice, of two minds;
/// DataError as Checkpoint.
[[nodiscard]] parallel::InitialValue open_checkpoints(const WeightFolders& folders, model::ParameterList& list);

/// Makes the folder of checkpoint.export. Throws ConfigError if it is the one that the run starts from, or holds weights
/// already and output.overwrite does not allow to replace them; IoError if it cannot be made or written into.
void check_export(const config::RunConfig& config);
/// Rank 0's files of checkpoint.export: model.safetensors with config.json where the run started from one, or, of a run that
/// trained adapters, these in the public adapter layout. Throws IoError.
void export_weights(const config::RunConfig& config, const std::vector<parallel::NamedTensor>& tensors, bool adapters);
/// The one of them that holds the tensors.
[[nodiscard]] std::string exported_file(const config::RunConfig& config, bool adapters);

}  // namespace shardmark::train

#pragma once
// Named tensors to and from safetensors files. Rank 0 writes; every rank may read.

#include <memory>
#include <string>
#include <vector>

#include "model/parameter.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::train {

/// Writes tensors in the given order, as fp32 (counters as int64), aside, then renames. Makes the folder. Throws IoError.
void write_tensors(const std::string& path, const std::vector<parallel::NamedTensor>& tensors);

/// First values from FOLDER/model.safetensors: every parameter and every fp32 buffer of the model must be there with its shape
/// as F32 or BF16, and nothing else but its counters. Fills the buffers at once. Throws ConfigError listing everything missing,
/// unknown or of the wrong shape. "" = none: returns an empty function.
[[nodiscard]] parallel::InitialValue open_checkpoint(const std::string& folder, model::ParameterList& list);

}  // namespace shardmark::train

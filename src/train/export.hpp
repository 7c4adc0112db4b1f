#pragma once
// Named tensors to and from safetensors files. Rank 0 writes; every rank may read.

#include <memory>
#include <string>
#include <vector>

#include "model/parameter.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::train {

/// Writes fp32 tensors in the given order, aside, then renames. Makes the folder. Throws IoError.
void write_tensors(const std::string& path, const std::vector<parallel::NamedTensor>& tensors);

/// First values from FOLDER/model.safetensors: every parameter of the model must be there with its shape as F32, and nothing
/// else. Throws DataError listing everything missing, unknown or of the wrong shape. "" = none: returns an empty function.
[[nodiscard]] parallel::InitialValue open_checkpoint(const std::string& folder, const model::ParameterList& list);

}  // namespace shardmark::train

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

/// First values from a folder's checkpoint (see weights/checkpoint.hpp): every parameter and every fp32 buffer of the model
/// must be there with its shape as F32 or BF16, and nothing else but its counters and what a parameter is also named. Fills the
/// buffers at once. Throws ConfigError listing everything missing, unknown, of the wrong shape or, stored twice, of two minds;
/// DataError as Checkpoint. "" = none: returns an empty function.
[[nodiscard]] parallel::InitialValue open_checkpoint(const std::string& folder, model::ParameterList& list);

}  // namespace shardmark::train

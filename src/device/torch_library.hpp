#pragma once
// What the loaded LibTorch says of its own build.

#include <string>

namespace shardmark::device {

/// A build setting of the loaded LibTorch, such as TORCH_VERSION or CUDA_VERSION; "" if it does not name it.
[[nodiscard]] std::string torch_build_setting(const std::string& name);

}  // namespace shardmark::device

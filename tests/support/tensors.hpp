#pragma once
// Tensors out of safetensors files, for tests.

#include <torch/torch.h>

#include <map>
#include <string>

#include "weights/safetensors.hpp"

namespace shardmark::testing {

/// A whole tensor in its stored type.
[[nodiscard]] inline torch::Tensor read_tensor(const weights::SafetensorsFile& file, const std::string& name) {
  static const std::map<weights::ElementType, at::ScalarType> types{
      {weights::ElementType::f32, at::kFloat},     {weights::ElementType::f64, at::kDouble},
      {weights::ElementType::bf16, at::kBFloat16}, {weights::ElementType::i64, at::kLong},
      {weights::ElementType::i32, at::kInt},       {weights::ElementType::u8, at::kByte}};
  const auto& info = file.at(name);
  torch::Tensor tensor = at::empty(info.shape, at::TensorOptions(types.at(info.type)));
  if (info.num_bytes > 0) {
    file.read_into(name, {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(info.num_bytes)});
  }
  return tensor;
}

}  // namespace shardmark::testing

#include "train/export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "base/text.hpp"
#include "weights/safetensors.hpp"

namespace shardmark::train {

void write_tensors(const std::string& path, const std::vector<parallel::NamedTensor>& tensors) {
  std::error_code failure;
  const auto folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw base::IoError(fmt::format("cannot make the folder {}: {}", folder.string(), failure.message()));
  }
  std::vector<weights::TensorToWrite> views;
  std::vector<torch::Tensor> kept;  // contiguous copies must outlive the writing
  for (const auto& tensor : tensors) {
    kept.push_back(tensor.values.detach().to(at::kFloat).contiguous());
    const auto& values = kept.back();
    views.push_back({tensor.name, weights::ElementType::f32, values.sizes().vec(),
                     std::as_bytes(std::span(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())))});
  }
  weights::write_safetensors(path, views, {}, weights::TensorOrder::as_given);
}

parallel::InitialValue open_checkpoint(const std::string& folder, const model::ParameterList& list) {
  if (folder.empty()) {
    return {};
  }
  const std::string path = folder + "/model.safetensors";
  const auto file = std::make_shared<weights::SafetensorsFile>(path);
  std::vector<std::string> problems;
  for (const auto& parameter : list.parameters()) {
    const auto* stored = file->find(parameter.name);
    if (stored == nullptr) {
      problems.push_back(fmt::format("{}: tensor {} is missing", path, parameter.name));
    } else if (stored->type != weights::ElementType::f32 || stored->shape != parameter.shape) {
      problems.push_back(fmt::format("{}: tensor {} is {} ({}), the model needs F32 ({})", path, parameter.name,
                                     weights::name_of(stored->type), fmt::join(stored->shape, ", "),
                                     fmt::join(parameter.shape, ", ")));
    }
  }
  for (const auto& stored : file->tensors()) {
    if (std::ranges::none_of(list.parameters(), [&](const auto& parameter) { return parameter.name == stored.name; })) {
      problems.push_back(fmt::format("{}: tensor {} is not one of this model's", path, stored.name));
    }
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  return [file](const model::Parameter& parameter, std::span<float> out) {
    file->read_into(parameter.name, std::as_writable_bytes(out));
    return true;
  };
}

}  // namespace shardmark::train

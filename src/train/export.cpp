#include "train/export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

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
    const bool counts = tensor.values.scalar_type() == at::kLong;
    kept.push_back(tensor.values.detach().to(at::kCPU, counts ? at::kLong : at::kFloat).contiguous());
    const auto& values = kept.back();
    views.push_back({tensor.name, counts ? weights::ElementType::i64 : weights::ElementType::f32, values.sizes().vec(),
                     std::span(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes())});
  }
  weights::write_safetensors(path, views, {}, weights::TensorOrder::as_given);
}

namespace {

/// What a tensor of the model may be stored as.
bool widens_to_fp32(weights::ElementType type) {
  return type == weights::ElementType::f32 || type == weights::ElementType::bf16;
}

void read_as_fp32(const weights::SafetensorsFile& file, const std::string& name, std::span<float> out) {
  if (file.at(name).type == weights::ElementType::f32) {
    file.read_into(name, std::as_writable_bytes(out));
    return;
  }
  std::vector<std::uint16_t> halves(out.size());
  file.read_into(name, std::as_writable_bytes(std::span(halves)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16U);
  }
}

/// A tensor that the model has and a file must hold.
struct Wanted {
  std::string name;
  std::vector<std::int64_t> shape;
};

std::string problem_of(const weights::SafetensorsFile& file, const Wanted& wanted) {
  const auto* stored = file.find(wanted.name);
  if (stored == nullptr) {
    return fmt::format("{}: tensor {} is missing", file.path(), wanted.name);
  }
  if (!widens_to_fp32(stored->type) || stored->shape != wanted.shape) {
    return fmt::format("{}: tensor {} is {} ({}), the model needs F32 or BF16 ({})", file.path(), wanted.name,
                       weights::name_of(stored->type), fmt::join(stored->shape, ", "), fmt::join(wanted.shape, ", "));
  }
  return {};
}

/// Counters (int64) are not read: nothing depends on them, and older files lack them.
bool is_read(const model::NamedBuffer& buffer) {
  return buffer.value.scalar_type() == at::kFloat;
}

}  // namespace

parallel::InitialValue open_checkpoint(const std::string& folder, model::ParameterList& list) {
  if (folder.empty()) {
    return {};
  }
  const auto file = std::make_shared<weights::SafetensorsFile>(folder + "/model.safetensors");
  std::vector<Wanted> wanted;
  std::set<std::string> known;
  for (const auto& parameter : list.parameters()) {
    wanted.push_back({parameter.name, parameter.shape});
  }
  for (const auto& buffer : list.buffers()) {
    known.insert(buffer.name);
    if (is_read(buffer)) {
      wanted.push_back({buffer.name, buffer.value.sizes().vec()});
    }
  }
  std::vector<std::string> problems;
  for (const auto& tensor : wanted) {
    known.insert(tensor.name);
    if (auto problem = problem_of(*file, tensor); !problem.empty()) {
      problems.push_back(std::move(problem));
    }
  }
  for (const auto& stored : file->tensors()) {
    if (!known.contains(stored.name)) {
      problems.push_back(fmt::format("{}: tensor {} is not one of this model's", file->path(), stored.name));
    }
  }
  if (!problems.empty()) {
    throw base::ConfigError(std::move(problems));
  }
  for (auto& buffer : list.buffers()) {
    if (is_read(buffer)) {
      read_as_fp32(*file, buffer.name, {buffer.value.data_ptr<float>(), static_cast<std::size_t>(buffer.value.numel())});
    }
  }
  return [file](const model::Parameter& parameter, std::span<float> out) {
    read_as_fp32(*file, parameter.name, out);
    return true;
  };
}

}  // namespace shardmark::train

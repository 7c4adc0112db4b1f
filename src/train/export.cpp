#include "train/export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "weights/checkpoint.hpp"
#include "weights/config_files.hpp"

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

constexpr std::size_t kComparedElements = 1 << 20;  // at a time

/// What a tensor of the model may be stored as.
bool widens_to_fp32(weights::ElementType type) {
  return type == weights::ElementType::f32 || type == weights::ElementType::bf16;
}

void read_as_fp32(const weights::Checkpoint::Place& place, std::int64_t first, std::span<float> out) {
  const std::int64_t begin = first * weights::size_of(place.info->type);
  if (place.info->type == weights::ElementType::f32) {
    place.file->read_into(*place.info, std::as_writable_bytes(out), begin);
    return;
  }
  // Into the second half of `out`, from where each moves down to its place: nothing is overwritten before it is read.
  auto* halves = reinterpret_cast<std::uint16_t*>(out.data()) + out.size();
  place.file->read_into(*place.info, std::as_writable_bytes(std::span(halves, out.size())), begin);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves + i, sizeof half);
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16U);
  }
}

/// A tensor that the model has and a checkpoint must hold.
struct Wanted {
  std::string name;
  std::vector<std::int64_t> shape;
};

std::string problem_of(const weights::Checkpoint& checkpoint, const Wanted& wanted) {
  const auto* place = checkpoint.find(wanted.name);
  if (place == nullptr) {
    return fmt::format("{}: tensor {} is missing", checkpoint.path(), wanted.name);
  }
  if (!widens_to_fp32(place->info->type) || place->info->shape != wanted.shape) {
    return fmt::format("{}: tensor {} is {} ({}), the model needs F32 or BF16 ({})", place->file->path(), wanted.name,
                       weights::name_of(place->info->type), fmt::join(place->info->shape, ", "), fmt::join(wanted.shape, ", "));
  }
  return {};
}

/// Where the same values are stored twice, both must be the same, or the model would ignore one of them.
std::string difference(const weights::Checkpoint& checkpoint, const std::string& name, const std::string& other) {
  const auto& first = *checkpoint.find(name);
  const auto& second = *checkpoint.find(other);
  std::vector<float> ours(kComparedElements);
  std::vector<float> theirs(kComparedElements);
  for (std::int64_t begin = 0; begin < first.info->num_elements(); begin += static_cast<std::int64_t>(kComparedElements)) {
    const auto count = std::min(kComparedElements, static_cast<std::size_t>(first.info->num_elements() - begin));
    read_as_fp32(first, begin, std::span(ours).first(count));
    read_as_fp32(second, begin, std::span(theirs).first(count));
    if (std::memcmp(ours.data(), theirs.data(), count * sizeof(float)) != 0) {
      return fmt::format(
          "{}: tensors {} and {} are one in this model and differ here: set model.tie_word_embeddings = false "
          "(config.json: tie_word_embeddings), or leave {} out",
          checkpoint.path(), name, other, other);
    }
  }
  return {};
}

/// Counters (int64) are not read: nothing depends on them, and older files lack them.
bool is_read(const model::NamedBuffer& buffer) {
  return buffer.value.scalar_type() == at::kFloat;
}

/// The first of many problems of one kind tell enough.
std::vector<std::string> shortened(std::vector<std::string> problems) {
  constexpr std::size_t kMost = 10;
  if (problems.size() > kMost + 1) {
    const auto left = problems.size() - kMost;
    problems.resize(kMost);
    problems.push_back(fmt::format("and {} more like these", left));
  }
  return problems;
}

/// What is missing in a checkpoint of the model's own parameters or of its adapters, of the wrong shape, or of another model.
std::vector<std::string> problems_of(const weights::Checkpoint& checkpoint, const model::ParameterList& list,
                                     bool of_adapters) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  const auto look = [&](const Wanted& wanted) {
    known.insert(wanted.name);
    auto problem = problem_of(checkpoint, wanted);
    const bool good = problem.empty();
    if (!good) {
      problems.push_back(std::move(problem));
    }
    return good;
  };
  for (const auto& parameter : list.parameters()) {
    if (parameter.is_adapter != of_adapters) {
      continue;
    }
    const bool twice = !parameter.also_named.empty() && checkpoint.find(parameter.also_named) != nullptr;
    if (look({parameter.name, parameter.shape}) && twice && look({parameter.also_named, parameter.shape})) {
      if (auto problem = difference(checkpoint, parameter.name, parameter.also_named); !problem.empty()) {
        problems.push_back(std::move(problem));
      }
    }
  }
  for (const auto& buffer : list.buffers()) {
    known.insert(buffer.name);
    if (!of_adapters && is_read(buffer)) {
      look({buffer.name, buffer.value.sizes().vec()});
    }
  }
  const auto is_known = [&](const auto& entry) { return known.contains(entry.first); };
  if (std::ranges::none_of(checkpoint.tensors(), is_known)) {
    return {fmt::format(
        "{}: none of its {} tensors (as {}) is one of this model's (as {}): it is a checkpoint of another model",
        checkpoint.path(), checkpoint.tensors().size(),
        checkpoint.tensors().empty() ? "none" : checkpoint.tensors().begin()->first, known.empty() ? "none" : *known.begin())};
  }
  for (const auto& [name, place] : checkpoint.tensors()) {
    if (!known.contains(name)) {
      problems.push_back(fmt::format("{}: tensor {} is not one of this model's", place.file->path(), name));
    }
  }
  return problems;
}

}  // namespace

WeightFolders weight_folders(const config::RunConfig& config) {
  return {config.model.checkpoint, config.model.lora.checkpoint};
}

parallel::InitialValue open_checkpoints(const WeightFolders& folders, model::ParameterList& list) {
  std::shared_ptr<weights::Checkpoint> model;
  std::shared_ptr<weights::Checkpoint> adapter;
  std::vector<std::string> problems;
  const auto open = [&](const std::string& folder, const char* stem, auto& checkpoint) {
    if (!folder.empty()) {
      checkpoint = std::make_shared<weights::Checkpoint>(folder, stem);
      std::ranges::move(problems_of(*checkpoint, list, &checkpoint == &adapter), std::back_inserter(problems));
    }
  };
  open(folders.model, "model", model);
  open(folders.adapter, "adapter_model", adapter);
  if (!problems.empty()) {
    throw base::ConfigError(shortened(std::move(problems)));
  }
  for (auto& buffer : list.buffers()) {
    if (model != nullptr && is_read(buffer)) {
      read_as_fp32(*model->find(buffer.name), 0,
                   {buffer.value.data_ptr<float>(), static_cast<std::size_t>(buffer.value.numel())});
    }
  }
  return [model, adapter](const model::Parameter& parameter, std::int64_t first, std::span<float> out) {
    const auto& checkpoint = parameter.is_adapter ? adapter : model;
    if (checkpoint == nullptr) {
      return false;
    }
    read_as_fp32(*checkpoint->find(parameter.name), first, out);
    return true;
  };
}

void check_export(const config::RunConfig& config) {
  const std::string& folder = config.checkpoint.export_folder;
  if (folder.empty()) {
    return;
  }
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw base::IoError(fmt::format("checkpoint.export = {}: no folder that can be written into: {}", folder,
                                    failure ? failure.message() : std::strerror(errno)));
  }
  for (const auto& [key, from] : {std::pair{"model.checkpoint", config.model.checkpoint},
                                  std::pair{"model.lora.checkpoint", config.model.lora.checkpoint}}) {
    if (!from.empty() && std::filesystem::equivalent(from, folder, failure)) {
      throw base::ConfigError(
          fmt::format("checkpoint.export = {} is the folder of {}: what the run starts from stays; name another", folder, key));
    }
  }
  for (const bool adapters : {false, true}) {
    if (const auto file = exported_file(config, adapters); std::filesystem::exists(file, failure) && !config.output.overwrite) {
      throw base::ConfigError(
          fmt::format("checkpoint.export = {}: {} exists: name another folder, or set output.overwrite = true", folder, file));
    }
  }
}

void export_weights(const config::RunConfig& config, const std::vector<parallel::NamedTensor>& tensors, bool adapters) {
  const std::string& folder = config.checkpoint.export_folder;
  write_tensors(exported_file(config, adapters), tensors);
  if (adapters) {
    std::set<std::string> targets;
    for (const auto& tensor : tensors) {  // base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
      const auto end = tensor.name.rfind(".lora_");
      const auto start = tensor.name.rfind('.', end - 1) + 1;
      targets.insert(tensor.name.substr(start, end - start));
    }
    const auto& lora = config.model.lora;
    weights::write_adapter_config(folder, {.rank = lora.rank,
                                           .alpha = lora.alpha > 0 ? lora.alpha : static_cast<double>(lora.rank),
                                           .dropout = lora.dropout,
                                           .targets = {targets.begin(), targets.end()},
                                           .base = config.model.checkpoint});
  } else if (!config.model.checkpoint.empty()) {
    weights::copy_config(config.model.checkpoint, folder, "float32");
  }
}

std::string exported_file(const config::RunConfig& config, bool adapters) {
  return config.checkpoint.export_folder + (adapters ? "/adapter_model.safetensors" : "/model.safetensors");
}

}  // namespace shardmark::train

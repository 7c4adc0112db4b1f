#include "weights/checkpoint.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/error.hpp"

namespace shardmark::weights {
namespace {

constexpr std::uintmax_t kMaxIndexBytes = kMaxHeaderBytes;

bool is_there(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

/// File by tensor, of an index. Throws DataError naming the path and the entry.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  std::error_code failure;
  if (const auto bytes = std::filesystem::file_size(path, failure); failure || bytes > kMaxIndexBytes) {
    throw base::DataError(fmt::format("{}: {}", path.string(),
                                      failure ? failure.message() : fmt::format("{} bytes are too many for an index", bytes)));
  }
  std::ifstream file(path, std::ios::binary);
  const auto index = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw base::DataError(
        fmt::format("{}: no index: an object \"weight_map\" of tensor and file names is needed", path.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, name] : map->items()) {
    const auto text = name.is_string() ? name.get<std::string>() : std::string();
    // A file beside the index, and nothing else on this machine.
    if (text.empty() || text.find('/') != std::string::npos || text == "." || text == "..") {
      throw base::DataError(fmt::format("{}: tensor {} lies in {}: the name of a file beside the index is needed",
                                        path.string(), tensor, name.dump()));
    }
    files.emplace(tensor, text);
  }
  return files;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder, const std::string& stem) {
  const auto single = folder / (stem + ".safetensors");
  const auto index = folder / (stem + ".safetensors.index.json");
  if (is_there(single)) {
    path_ = single.string();
    open(single);
  } else if (is_there(index)) {
    path_ = index.string();
    open_indexed(index);
  } else {
    throw base::DataError(fmt::format("{}: no checkpoint: neither {} nor {} is there", folder.string(),
                                      single.filename().string(), index.filename().string()));
  }
}

void Checkpoint::open(const std::filesystem::path& path) {
  const auto& file = files_.emplace_back(path);
  for (const auto& tensor : file.tensors()) {
    const auto [place, is_new] = places_.emplace(tensor.name, Place{&file, &tensor});
    if (!is_new) {
      throw base::DataError(fmt::format("{}: tensor {} is in {}, too", path.string(), tensor.name, place->second.file->path()));
    }
  }
}

void Checkpoint::open_indexed(const std::filesystem::path& index) {
  const auto wanted = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, name] : wanted) {
    names.insert(name);
  }
  for (const auto& name : names) {
    if (!is_there(index.parent_path() / name)) {
      throw base::DataError(fmt::format("{}: the file {} is not there: download it again", index.string(), name));
    }
    open(index.parent_path() / name);
  }
  for (const auto& [tensor, name] : wanted) {
    const auto* place = find(tensor);
    if (place == nullptr || std::filesystem::path(place->file->path()).filename() != name) {
      throw base::DataError(fmt::format("{}: tensor {} is not in {}", index.string(), tensor, name));
    }
  }
  for (const auto& [tensor, place] : places_) {
    if (!wanted.contains(tensor)) {
      throw base::DataError(fmt::format("{}: tensor {} of {} is not in the index", index.string(), tensor, place.file->path()));
    }
  }
}

const Checkpoint::Place* Checkpoint::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &place->second;
}

std::int64_t Checkpoint::num_bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, place] : places_) {
    sum += place.info->num_bytes;
  }
  return sum;
}

}  // namespace shardmark::weights

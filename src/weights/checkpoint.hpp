#pragma once
// The tensors of a checkpoint folder: FOLDER/STEM.safetensors, or the files that FOLDER/STEM.safetensors.index.json names.
// Only headers are in memory; every rank opens the files and reads what it needs of them.

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.hpp"

namespace shardmark::weights {

class Checkpoint {
 public:
  /// Opens and checks every file. Throws SafetensorsError for a file that breaks the format, DataError where there is neither
  /// file, or where index and files do not hold the same tensors: every one must be where the index says and nowhere else.
  explicit Checkpoint(const std::filesystem::path& folder, const std::string& stem = "model");

  /// Where a tensor lies.
  struct Place {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* info = nullptr;
  };

  /// The one file or the index: what messages name where no single file is meant.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// By name, in order.
  [[nodiscard]] const std::map<std::string, Place, std::less<>>& tensors() const { return places_; }
  /// nullptr if there is none of that name.
  [[nodiscard]] const Place* find(std::string_view name) const;
  /// Of all tensors.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  void open(const std::filesystem::path& path);
  void open_indexed(const std::filesystem::path& index);

  std::string path_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace shardmark::weights

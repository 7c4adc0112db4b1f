#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "weights/safetensors.hpp"

namespace shardmark::weights {
namespace {

/// The file aside; removed again unless it was renamed.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
    descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      fail("creating");
    }
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
    if (!renamed_) {
      unlink(partial_.c_str());
    }
  }

  void write_all(std::span<const std::byte> data) const {
    while (!data.empty()) {
      const ssize_t count = write(descriptor_, data.data(), data.size());
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        fail("writing");
      }
      data = data.subspan(static_cast<std::size_t>(count));
    }
  }

  /// Syncs, closes, renames and syncs the folder, so that the name too survives a crash.
  void commit() {
    if (fsync(descriptor_) != 0) {
      fail("syncing");
    }
    if (close(std::exchange(descriptor_, -1)) != 0) {
      fail("closing");
    }
    if (rename(partial_.c_str(), path_.c_str()) != 0) {
      fail("renaming");
    }
    renamed_ = true;
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
      fail("opening the folder of");
    }
    const bool synced = fsync(descriptor) == 0 || errno == EINVAL;  // some file systems cannot sync a folder
    const int code = errno;
    close(descriptor);
    if (!synced) {
      errno = code;
      fail("syncing the folder of");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& action) const {
    const int code = errno;
    throw base::IoError(fmt::format("{} {}: {}", action, path_, std::strerror(code)));
  }

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

std::vector<const TensorToWrite*> in_order(std::span<const TensorToWrite> tensors, TensorOrder order) {
  std::vector<const TensorToWrite*> sorted;
  for (const TensorToWrite& tensor : tensors) {
    sorted.push_back(&tensor);
  }
  if (order == TensorOrder::by_name) {
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const TensorToWrite* a, const TensorToWrite* b) { return a->name < b->name; });
  }
  return sorted;
}

std::string make_header(const std::vector<const TensorToWrite*>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::int64_t position = 0;
  std::map<std::string_view, bool> names;
  for (const TensorToWrite* tensor : tensors) {
    SM_CHECK(tensor->name != "__metadata__" && names.emplace(tensor->name, true).second,
             fmt::format("a safetensors file cannot hold \"{}\" {}", tensor->name,
                         tensor->name == "__metadata__" ? "as a tensor" : "twice"));
    std::int64_t bytes = size_of(tensor->type);
    for (const std::int64_t extent : tensor->shape) {
      SM_CHECK(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes),
               fmt::format("tensor \"{}\" has the shape [{}]", tensor->name, fmt::join(tensor->shape, ", ")));
    }
    SM_CHECK(static_cast<std::int64_t>(tensor->data.size()) == bytes,
             fmt::format("tensor \"{}\" of {} [{}] takes {} bytes, {} were given", tensor->name, name_of(tensor->type),
                         fmt::join(tensor->shape, ", "), bytes, tensor->data.size()));
    header[tensor->name] = {
        {"dtype", name_of(tensor->type)}, {"shape", tensor->shape}, {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  SM_CHECK(text.size() <= kMaxHeaderBytes,
           fmt::format("a header of {} bytes; readers stop at {}", text.size(), kMaxHeaderBytes));
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata, TensorOrder order) {
  const auto sorted = in_order(tensors, order);
  const std::string header = make_header(sorted, metadata);
  const auto length = std::bit_cast<std::array<std::byte, 8>>(static_cast<std::uint64_t>(header.size()));
  PartialFile file(path.string());
  file.write_all(length);
  file.write_all(std::as_bytes(std::span(header)));
  for (const TensorToWrite* tensor : sorted) {
    file.write_all(tensor->data);
  }
  file.commit();
}

}  // namespace shardmark::weights

#pragma once
// safetensors files: a strict reader that trusts nothing in a file, and a writer whose files appear whole or not at all.
// Deals in bytes, names, element types and shapes; knows nothing of models or LibTorch.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace shardmark::weights {

enum class ElementType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i8, u8, boolean };

/// The name in a file: "F32", "BOOL", ...
[[nodiscard]] std::string_view name_of(ElementType type) noexcept;
[[nodiscard]] std::int64_t size_of(ElementType type) noexcept;

/// Which rule a file breaks. Every rule has its own message too.
enum class SafetensorsFault : std::uint8_t {
  not_a_file,
  too_short,
  header_too_large,
  header_outside_file,
  header_not_utf8,
  header_not_json,
  header_not_object,
  nested_too_deep,
  too_many_tensors,
  duplicate_name,
  bad_metadata,
  bad_entry,
  unknown_type,
  bad_shape,
  shape_overflow,
  bad_offsets,
  offsets_reversed,
  size_mismatch,
  overlap,
  hole,
  data_outside_file,
  trailing_bytes,
};

[[nodiscard]] std::string_view name_of(SafetensorsFault fault) noexcept;

/// A file that breaks a rule of the format (exit 2). The message names path, tensor, what was found and what is right.
class SafetensorsError : public base::DataError {
 public:
  SafetensorsError(SafetensorsFault fault, const std::string& message) : DataError(message), fault_(fault) {}
  [[nodiscard]] SafetensorsFault fault() const noexcept { return fault_; }

 private:
  SafetensorsFault fault_;
};

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
inline constexpr std::size_t kMaxTensors = 1'000'000;
inline constexpr std::size_t kMaxDimensions = 64;

struct TensorInfo {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;  // empty: one element
  std::int64_t begin = 0;           // offset into the data, which follows the header
  std::int64_t num_bytes = 0;
  [[nodiscard]] std::int64_t num_elements() const { return num_bytes / size_of(type); }
};

struct SafetensorsHeader {
  // In the order of their data. A deque never holds one block larger than the file it came from.
  std::deque<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

/// Parses a header's JSON and checks every rule, with `data_bytes` bytes following it. `path` is for messages only.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                                         const std::string& path);

/// An open file. Only the header is in memory; tensors are read on demand.
class SafetensorsFile {
 public:
  /// Opens and checks the whole header. Throws SafetensorsError, or IoError if reading itself fails.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::deque<TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// The tensor of that name, or nullptr.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// As `find`; throws DataError naming the path and the closest name there is.
  [[nodiscard]] const TensorInfo& at(std::string_view name) const;

  /// Reads out.size() bytes of the tensor from byte `first` on. The range must lie inside the tensor.
  /// Throws IoError with errno text; a file that shrank since it was opened is one too.
  void read_into(const TensorInfo& tensor, std::span<std::byte> out, std::int64_t first = 0) const;
  /// Reads a whole tensor; out must have exactly its bytes.
  void read_into(std::string_view name, std::span<std::byte> out) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t data_start_ = 0;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  // indices of tensors, sorted by name
};

/// One tensor to write; its bytes are lent for the call.
struct TensorToWrite {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

enum class TensorOrder : std::uint8_t { by_name, as_given };

/// Writes PATH.partial, syncs it, renames it to PATH and syncs the folder: PATH is whole or as it was before. The header is
/// padded with spaces so that the data starts at a multiple of 8. Names must differ and data fit type and shape
/// (InvariantError). Throws IoError with path and errno text; then PATH.partial is removed.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {}, TensorOrder order = TensorOrder::by_name);

}  // namespace shardmark::weights

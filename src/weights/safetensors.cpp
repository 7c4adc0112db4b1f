#include "weights/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/text.hpp"

namespace shardmark::weights {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and tensors are read as stored");

std::string_view name_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f64: return "F64";
    case ElementType::f32: return "F32";
    case ElementType::f16: return "F16";
    case ElementType::bf16: return "BF16";
    case ElementType::i64: return "I64";
    case ElementType::i32: return "I32";
    case ElementType::i8: return "I8";
    case ElementType::u8: return "U8";
    case ElementType::boolean: return "BOOL";
  }
  return "?";
}

std::int64_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f64:
    case ElementType::i64: return 8;
    case ElementType::f32:
    case ElementType::i32: return 4;
    case ElementType::f16:
    case ElementType::bf16: return 2;
    case ElementType::i8:
    case ElementType::u8:
    case ElementType::boolean: return 1;
  }
  return 1;
}

std::string_view name_of(SafetensorsFault fault) noexcept {
  switch (fault) {
    case SafetensorsFault::not_a_file: return "not a file";
    case SafetensorsFault::too_short: return "too short";
    case SafetensorsFault::header_too_large: return "header too large";
    case SafetensorsFault::header_outside_file: return "header outside file";
    case SafetensorsFault::header_not_utf8: return "header not UTF-8";
    case SafetensorsFault::header_not_json: return "header not JSON";
    case SafetensorsFault::header_not_object: return "header not an object";
    case SafetensorsFault::nested_too_deep: return "nested too deep";
    case SafetensorsFault::too_many_tensors: return "too many tensors";
    case SafetensorsFault::duplicate_name: return "duplicate name";
    case SafetensorsFault::bad_metadata: return "bad metadata";
    case SafetensorsFault::bad_entry: return "bad entry";
    case SafetensorsFault::unknown_type: return "unknown type";
    case SafetensorsFault::bad_shape: return "bad shape";
    case SafetensorsFault::shape_overflow: return "shape overflow";
    case SafetensorsFault::bad_offsets: return "bad offsets";
    case SafetensorsFault::offsets_reversed: return "offsets reversed";
    case SafetensorsFault::size_mismatch: return "size mismatch";
    case SafetensorsFault::overlap: return "overlap";
    case SafetensorsFault::hole: return "hole";
    case SafetensorsFault::data_outside_file: return "data outside file";
    case SafetensorsFault::trailing_bytes: return "trailing bytes";
  }
  return "?";
}

namespace {

constexpr std::size_t kLengthBytes = 8;

/// Fills `out` from the file's byte `offset` on; reads may be short or interrupted.
void read_exactly(int descriptor, std::span<std::byte> out, std::int64_t offset, const std::string& path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        pread(descriptor, out.data() + done, out.size() - done, static_cast<off_t>(offset + static_cast<std::int64_t>(done)));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      const int code = errno;
      throw base::IoError(fmt::format("{}: reading {} bytes at {}: {}", path, out.size(), offset, std::strerror(code)));
    }
    if (count == 0) {
      throw base::IoError(
          fmt::format("{}: the file ended {} bytes early: it was cut while being read", path, out.size() - done));
    }
    done += static_cast<std::size_t>(count);
  }
}

int open_regular(const std::string& path, std::int64_t& file_bytes) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int code = errno;
    throw SafetensorsError(SafetensorsFault::not_a_file, fmt::format("{}: {}", path, std::strerror(code)));
  }
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    throw SafetensorsError(SafetensorsFault::not_a_file,
                           fmt::format("{}: not a regular file; name the .safetensors file", path));
  }
  file_bytes = info.st_size;
  return descriptor;
}

/// Header length from the first eight bytes, held to the limits before anything is allocated.
std::uint64_t read_header_length(int descriptor, std::int64_t file_bytes, const std::string& path) {
  if (file_bytes < static_cast<std::int64_t>(kLengthBytes)) {
    throw SafetensorsError(
        SafetensorsFault::too_short,
        fmt::format("{}: {} bytes; a safetensors file starts with 8 bytes of header length", path, file_bytes));
  }
  std::array<std::byte, kLengthBytes> raw{};
  read_exactly(descriptor, raw, 0, path);
  const auto length = std::bit_cast<std::uint64_t>(raw);
  if (length > kMaxHeaderBytes) {
    throw SafetensorsError(SafetensorsFault::header_too_large,
                           fmt::format("{}: a header of {} bytes; the limit is {}", path, length, kMaxHeaderBytes));
  }
  const std::uint64_t behind_length = static_cast<std::uint64_t>(file_bytes) - kLengthBytes;
  if (length > behind_length) {
    throw SafetensorsError(SafetensorsFault::header_outside_file,
                           fmt::format("{}: a header of {} bytes, but only {} follow its length: the file is truncated or no "
                                       "safetensors file",
                                       path, length, behind_length));
  }
  return length;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()) {
  std::int64_t file_bytes = 0;
  descriptor_ = open_regular(path_, file_bytes);
  try {
    std::string json(read_header_length(descriptor_, file_bytes, path_), '\0');
    read_exactly(descriptor_, std::as_writable_bytes(std::span(json)), kLengthBytes, path_);
    data_start_ = static_cast<std::int64_t>(kLengthBytes + json.size());
    header_ = parse_safetensors_header(json, file_bytes - data_start_, path_);
  } catch (...) {
    close(descriptor_);
    throw;
  }
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::size_t a, std::size_t b) { return header_.tensors[a].name < header_.tensors[b].name; });
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_start_(other.data_start_),
      header_(std::move(other.header_)),
      by_name_(std::move(other.by_name_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_start_, other.data_start_);
  std::swap(header_, other.header_);
  std::swap(by_name_, other.by_name_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](std::size_t index, std::string_view wanted) { return header_.tensors[index].name < wanted; });
  return found != by_name_.end() && header_.tensors[*found].name == name ? &header_.tensors[*found] : nullptr;
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) {
    return *tensor;
  }
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header_.tensors) {
    names.push_back(tensor.name);
  }
  const std::string closest = base::closest_name(name, names);
  throw base::DataError(fmt::format("{}: no tensor \"{}\" among its {}{}", path_, name, names.size(),
                                    closest.empty() ? "" : fmt::format("; closest is \"{}\"", closest)));
}

void SafetensorsFile::read_into(const TensorInfo& tensor, std::span<std::byte> out, std::int64_t first) const {
  const auto count = static_cast<std::int64_t>(out.size());
  SM_CHECK(first >= 0 && count <= tensor.num_bytes && first <= tensor.num_bytes - count,
           fmt::format("bytes [{}, {} + {}) of tensor {} with {} bytes", first, first, count, tensor.name, tensor.num_bytes));
  read_exactly(descriptor_, out, data_start_ + tensor.begin + first, path_);
}

void SafetensorsFile::read_into(std::string_view name, std::span<std::byte> out) const {
  const TensorInfo& tensor = at(name);
  SM_CHECK(static_cast<std::int64_t>(out.size()) == tensor.num_bytes,
           fmt::format("tensor {} has {} bytes, the buffer {}", tensor.name, tensor.num_bytes, out.size()));
  read_into(tensor, out, 0);
}

}  // namespace shardmark::weights

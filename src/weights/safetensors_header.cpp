// The header of a safetensors file: JSON events are turned into tensors one by one, so that nothing is built that a rule
// would refuse. The rules are those of the format's README and reference reader.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <unordered_set>

#include "weights/safetensors.hpp"

namespace shardmark::weights {
namespace {

constexpr std::array kTypes{ElementType::f64, ElementType::f32, ElementType::f16, ElementType::bf16,   ElementType::i64,
                            ElementType::i32, ElementType::i8,  ElementType::u8,  ElementType::boolean};
constexpr std::string_view kMetadata = "__metadata__";

/// Receives the parser's events. Levels: 0 outside, 1 the header object, 2 a tensor's entry or the metadata, 3 an array.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(const std::string& path) : path_(path) {}

  bool null() override { return wrong_value("null"); }
  bool boolean(bool value) override { return wrong_value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return wrong_value(std::to_string(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    static_cast<void>(value);
    return wrong_value(text);
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override {
    static_cast<void>(value);
    return wrong_value("binary");
  }
  bool start_object(std::size_t elements) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t elements) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& last_token, const nlohmann::detail::exception& error) override;

  SafetensorsHeader take() { return std::move(header_); }

 private:
  enum class Field : std::uint8_t { none, type, shape, offsets };

  [[noreturn]] void refuse(SafetensorsFault fault, const std::string& message) const {
    throw SafetensorsError(fault, fmt::format("{}: {}", path_, message));
  }
  [[noreturn]] void refuse_entry(SafetensorsFault fault, const std::string& message) const {
    refuse(fault, fmt::format("tensor \"{}\": {}", entry_.name, message));
  }
  bool wrong_value(const std::string& value) const;
  void finish_entry();

  const std::string& path_;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  int level_ = 0;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::string metadata_key_;
  // The entry being read.
  TensorInfo entry_;
  Field field_ = Field::none;
  bool has_type_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<std::int64_t> offsets_;
};

bool HeaderEvents::wrong_value(const std::string& value) const {
  if (level_ == 0) {
    refuse(SafetensorsFault::header_not_object, fmt::format("the header is {}; it must be a JSON object", value));
  }
  if (in_metadata_) {
    refuse(SafetensorsFault::bad_metadata, fmt::format("__metadata__ holds {}; it maps texts to texts", value));
  }
  if (level_ == 1) {
    refuse_entry(SafetensorsFault::bad_entry, fmt::format("its entry is {}; dtype, shape and data_offsets are needed", value));
  }
  switch (field_) {
    case Field::type: refuse_entry(SafetensorsFault::unknown_type, fmt::format("dtype is {}; it must be a text", value));
    case Field::offsets:
      refuse_entry(SafetensorsFault::bad_offsets, fmt::format("data_offsets hold {}; two whole numbers are needed", value));
    case Field::shape:
    case Field::none: break;
  }
  refuse_entry(SafetensorsFault::bad_shape, fmt::format("shape holds {}; whole numbers from 0 are needed", value));
}

bool HeaderEvents::number_unsigned(number_unsigned_t value) {
  constexpr auto kLargest = static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
  if (level_ != 3) {
    return wrong_value(std::to_string(value));
  }
  if (field_ == Field::offsets) {
    if (value > kLargest) {
      refuse_entry(SafetensorsFault::data_outside_file, fmt::format("data_offsets hold {}, beyond any file", value));
    }
    if (offsets_.size() == 2) {
      refuse_entry(SafetensorsFault::bad_offsets, "data_offsets hold more than two numbers");
    }
    offsets_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (value > kLargest) {
    refuse_entry(SafetensorsFault::shape_overflow, fmt::format("shape holds {}, beyond any tensor", value));
  }
  if (entry_.shape.size() == kMaxDimensions) {
    refuse_entry(SafetensorsFault::bad_shape, fmt::format("shape has more than {} dimensions", kMaxDimensions));
  }
  entry_.shape.push_back(static_cast<std::int64_t>(value));
  return true;
}

bool HeaderEvents::string(string_t& value) {
  if (in_metadata_ && level_ == 2) {
    header_.metadata.emplace(metadata_key_, value);
    return true;
  }
  if (level_ != 2 || field_ != Field::type) {
    return wrong_value("\"" + value + "\"");
  }
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](ElementType type) { return name_of(type) == value; });
  if (found == kTypes.end()) {
    std::vector<std::string_view> known;
    for (const ElementType type : kTypes) {
      known.push_back(name_of(type));
    }
    refuse_entry(SafetensorsFault::unknown_type, fmt::format("dtype \"{}\"; known are {}", value, fmt::join(known, ", ")));
  }
  entry_.type = *found;
  return true;
}

bool HeaderEvents::start_object(std::size_t elements) {
  static_cast<void>(elements);
  if (level_ >= 2) {
    refuse(SafetensorsFault::nested_too_deep, "the header nests objects deeper than name and entry");
  }
  if (level_ == 1 && !in_metadata_) {
    has_type_ = has_shape_ = has_offsets_ = false;
    field_ = Field::none;
    offsets_.clear();
  }
  ++level_;
  return true;
}

bool HeaderEvents::key(string_t& value) {
  if (level_ == 1) {
    in_metadata_ = value == kMetadata;
    if (in_metadata_ && std::exchange(has_metadata_, true)) {
      refuse(SafetensorsFault::duplicate_name, "__metadata__ comes twice");
    }
    if (in_metadata_) {
      return true;
    }
    if (!names_.insert(value).second) {
      refuse(SafetensorsFault::duplicate_name, fmt::format("tensor \"{}\" comes twice", value));
    }
    if (names_.size() > kMaxTensors) {
      refuse(SafetensorsFault::too_many_tensors, fmt::format("more than {} tensors", kMaxTensors));
    }
    entry_ = TensorInfo{.name = value, .type = ElementType::f32, .shape = {}, .begin = 0, .num_bytes = 0};
    return true;
  }
  if (in_metadata_) {
    metadata_key_ = value;
    if (header_.metadata.contains(value)) {
      refuse(SafetensorsFault::duplicate_name, fmt::format("__metadata__ has the key \"{}\" twice", value));
    }
    return true;
  }
  bool* seen = nullptr;
  if (value == "dtype") {
    field_ = Field::type;
    seen = &has_type_;
  } else if (value == "shape") {
    field_ = Field::shape;
    seen = &has_shape_;
  } else if (value == "data_offsets") {
    field_ = Field::offsets;
    seen = &has_offsets_;
  } else {
    refuse_entry(SafetensorsFault::bad_entry,
                 fmt::format("unknown field \"{}\"; dtype, shape and data_offsets are known", value));
  }
  if (std::exchange(*seen, true)) {
    refuse_entry(SafetensorsFault::duplicate_name, fmt::format("field \"{}\" comes twice", value));
  }
  return true;
}

bool HeaderEvents::end_object() {
  --level_;
  if (level_ == 1) {
    if (!in_metadata_) {
      finish_entry();
    }
    in_metadata_ = false;
  }
  return true;
}

bool HeaderEvents::start_array(std::size_t elements) {
  static_cast<void>(elements);
  if (level_ >= 3) {
    refuse(SafetensorsFault::nested_too_deep, "the header nests arrays");
  }
  if (level_ != 2 || in_metadata_ || (field_ != Field::shape && field_ != Field::offsets)) {
    return wrong_value("an array");
  }
  ++level_;
  return true;
}

bool HeaderEvents::end_array() {
  --level_;
  return true;
}

bool HeaderEvents::parse_error(std::size_t position, const std::string& last_token, const nlohmann::detail::exception& error) {
  static_cast<void>(last_token);
  const std::string text = error.what();
  if (text.find("UTF-8") != std::string::npos) {
    refuse(SafetensorsFault::header_not_utf8, fmt::format("the header is not valid UTF-8 near byte {}", position));
  }
  refuse(SafetensorsFault::header_not_json, fmt::format("the header is not valid JSON near byte {}", position));
}

void HeaderEvents::finish_entry() {
  if (!has_type_ || !has_shape_ || !has_offsets_) {
    refuse_entry(SafetensorsFault::bad_entry, fmt::format("{} is missing", !has_type_    ? "dtype"
                                                                           : !has_shape_ ? "shape"
                                                                                         : "data_offsets"));
  }
  if (offsets_.size() != 2) {
    refuse_entry(SafetensorsFault::bad_offsets, fmt::format("data_offsets hold {} numbers; two are needed", offsets_.size()));
  }
  std::int64_t bytes = size_of(entry_.type);
  for (const std::int64_t extent : entry_.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      refuse_entry(SafetensorsFault::shape_overflow,
                   fmt::format("shape [{}] of {} overflows 64 bits", fmt::join(entry_.shape, ", "), name_of(entry_.type)));
    }
  }
  const std::int64_t begin = offsets_[0];
  const std::int64_t end = offsets_[1];
  if (begin > end) {
    refuse_entry(SafetensorsFault::offsets_reversed, fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
  }
  if (end - begin != bytes) {
    refuse_entry(SafetensorsFault::size_mismatch,
                 fmt::format("shape [{}] of {} takes {} bytes, data_offsets [{}, {}] cover {}", fmt::join(entry_.shape, ", "),
                             name_of(entry_.type), bytes, begin, end, end - begin));
  }
  entry_.begin = begin;
  entry_.num_bytes = bytes;
  header_.tensors.push_back(entry_);
}

/// Data must follow data from 0 to the end, without hole, overlap or rest.
void check_layout(const std::deque<TensorInfo>& tensors, std::int64_t data_bytes, const std::string& path) {
  std::int64_t position = 0;
  for (const TensorInfo& tensor : tensors) {
    const auto refuse = [&](SafetensorsFault fault, const std::string& message) {
      throw SafetensorsError(fault, fmt::format("{}: tensor \"{}\": {}", path, tensor.name, message));
    };
    if (tensor.begin < position) {
      refuse(SafetensorsFault::overlap,
             fmt::format("its data starts at {}, inside that of another tensor, which ends at {}", tensor.begin, position));
    }
    if (tensor.begin > position) {
      refuse(SafetensorsFault::hole, fmt::format("its data starts at {}, leaving a hole from {} on", tensor.begin, position));
    }
    if (tensor.num_bytes > data_bytes - position) {
      refuse(SafetensorsFault::data_outside_file,
             fmt::format("its data ends at {}, the file holds {} bytes of data: it is truncated",
                         tensor.begin + tensor.num_bytes, data_bytes));
    }
    position += tensor.num_bytes;
  }
  if (position != data_bytes) {
    throw SafetensorsError(SafetensorsFault::trailing_bytes,
                           fmt::format("{}: {} bytes follow the last tensor's data; nothing may", path, data_bytes - position));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& path) {
  HeaderEvents events(path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  SafetensorsHeader header = events.take();
  // Empty tensors come first among those that begin at one place.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.num_bytes, a.name) < std::tie(b.begin, b.num_bytes, b.name);
  });
  check_layout(header.tensors, data_bytes, path);
  return header;
}

}  // namespace shardmark::weights

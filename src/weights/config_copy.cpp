#include "weights/config_copy.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"

namespace shardmark::weights {

void copy_config(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& dtype) {
  const auto source = from / "config.json";
  std::error_code failure;
  if (!std::filesystem::exists(source, failure)) {
    return;
  }
  std::ifstream file(source, std::ios::binary);
  auto entries = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_object()) {
    throw base::DataError(fmt::format("{}: no JSON object", source.string()));
  }
  entries[entries.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  const auto target = to / "config.json";
  const auto partial = to / "config.json.partial";
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  out << entries.dump(2) << '\n';
  out.close();
  if (out) {
    std::filesystem::rename(partial, target, failure);
  }
  if (!out || failure) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw base::IoError(fmt::format("{} cannot be written: {}", target.string(), failure ? failure.message() : "disk full?"));
  }
}

}  // namespace shardmark::weights

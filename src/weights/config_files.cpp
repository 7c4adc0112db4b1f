#include "weights/config_files.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"

namespace shardmark::weights {
namespace {

using nlohmann::ordered_json;

void write(const std::filesystem::path& path, const ordered_json& entries) {
  const std::filesystem::path partial = path.string() + ".partial";
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  out << entries.dump(2) << '\n';
  out.close();
  std::error_code failure;
  if (out) {
    std::filesystem::rename(partial, path, failure);
  }
  if (!out || failure) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw base::IoError(fmt::format("{} cannot be written: {}", path.string(),
                                    failure ? failure.message() : "is the disk full, the folder yours?"));
  }
}

}  // namespace

void copy_config(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& dtype) {
  const auto source = from / "config.json";
  std::error_code failure;
  if (!std::filesystem::exists(source, failure)) {
    return;
  }
  std::ifstream file(source, std::ios::binary);
  auto entries = ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_object()) {
    throw base::DataError(fmt::format("{}: no JSON object", source.string()));
  }
  entries[entries.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  write(to / "config.json", entries);
}

void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config) {
  write(folder / "adapter_config.json",
        {{"peft_type", "LORA"},
         {"task_type", "CAUSAL_LM"},
         {"base_model_name_or_path", config.base.empty() ? ordered_json() : ordered_json(config.base)},
         {"r", config.rank},
         {"lora_alpha", config.alpha},
         {"lora_dropout", config.dropout},
         {"target_modules", config.targets},
         {"bias", "none"},
         {"fan_in_fan_out", false},
         {"init_lora_weights", true},
         {"inference_mode", true}});
}

}  // namespace shardmark::weights

#include "base/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"

extern "C" char** environ;  // NOLINT: POSIX

namespace shardmark::base {

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

std::optional<long> environment_number(const std::string& name) {
  const auto text = environment_variable(name);
  if (!text) {
    return std::nullopt;
  }
  char* end = nullptr;
  const long value = std::strtol(text->c_str(), &end, 10);
  if (end == text->c_str() || *end != '\0') {
    throw EnvironmentError(fmt::format("environment variable {} = \"{}\" is not a whole number", name, *text));
  }
  return value;
}

void set_environment_variable(const std::string& name, const std::string& value) {
  if (setenv(name.c_str(), value.c_str(), 1) != 0) {
    throw EnvironmentError(fmt::format("environment variable {} cannot be set: {}", name, std::strerror(errno)));
  }
}

std::vector<std::pair<std::string, std::string>> environment_by_prefix(std::span<const std::string_view> prefixes) {
  constexpr std::array<std::string_view, 5> secrets{"KEY", "TOKEN", "PASS", "SECRET", "CRED"};
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    const auto name = line.substr(0, equals);
    const auto has_prefix = [&](std::string_view prefix) { return name.starts_with(prefix); };
    const auto contains = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (std::ranges::any_of(prefixes, has_prefix) && std::ranges::none_of(secrets, contains)) {
      found.emplace_back(name, line.substr(equals + 1));
    }
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::pair<std::string, std::string>> recorded_environment() {
  // Prefixes whose values describe the machine and its tuning.
  constexpr std::array<std::string_view, 17> prefixes{
      "OMP_",        "KMP_",           "MKL_NUM",       "OPENBLAS_",   "OMPI_MCA_",    "OMPI_COMM_WORLD_",
      "NCCL_",       "CUDA_VISIBLE",   "CUDA_DEVICE_",  "UCX_",        "SLURM_JOB_",   "SLURM_N",
      "SLURM_CPUS_", "SLURM_STEP_NUM", "SLURM_RESTART", "FI_PROVIDER", "HDF5_USE_FILE"};
  return environment_by_prefix(prefixes);
}

}  // namespace shardmark::base

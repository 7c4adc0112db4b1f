#include "app/kernel_files.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace shardmark::app {
namespace {

namespace fs = std::filesystem;

/// cgroup v1 says "no limit" by the largest page-aligned number.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

/// The number behind a name at the start of a line, as in "MemTotal:   16 kB" and "inactive_file 4096"; -1 if there is none.
std::int64_t named_number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) {
      const auto digit = line.find_first_of("0123456789", name.size());
      return digit == std::string::npos ? -1 : number_in(line.substr(digit));
    }
  }
  return -1;
}

std::int64_t meminfo_bytes(const std::string& root, const std::string& key) {
  const auto kib = named_number(root + "/proc/meminfo", key + ":");
  return kib < 0 ? -1 : kib * 1024;
}

std::int64_t least_known(std::int64_t a, std::int64_t b) {
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_files;  // in memory.stat
};
constexpr CgroupFiles kCgroupFiles[] = {{"/memory.max", "/memory.current", "inactive_file "},
                                        {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "}};

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::int64_t number_in(const std::string& text) {
  std::int64_t value = -1;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : -1;
}

std::vector<std::string> cgroup_folders(const std::string& controller, const std::string& root) {
  std::vector<std::string> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + controller + ",") == std::string::npos) {
      continue;
    }
    const fs::path mount = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller);
    for (fs::path inner = line.substr(second + 1); inner.has_relative_path(); inner = inner.parent_path()) {
      folders.push_back((mount / inner.relative_path()).string());
    }
    folders.push_back(mount.string());
  }
  return folders;
}

std::int64_t HostMemory::free_bytes() const {
  return least_known(available_bytes, limit_left_bytes);
}

HostMemory host_memory(const std::string& root) {
  HostMemory memory;
  memory.total_bytes = meminfo_bytes(root, "MemTotal");
  memory.available_bytes = meminfo_bytes(root, "MemAvailable");
  for (const auto& folder : cgroup_folders("memory", root)) {
    for (const auto& [limit_name, usage_name, inactive_name] : kCgroupFiles) {
      const auto limit = number_in(first_line(folder + limit_name));  // "max" is no number
      if (limit < 0 || limit >= kNoLimit) {
        continue;
      }
      memory.limit_bytes = least_known(memory.limit_bytes, limit);
      const auto usage = number_in(first_line(folder + usage_name));
      const auto inactive = std::max<std::int64_t>(0, named_number(folder + "/memory.stat", inactive_name));
      if (usage >= 0) {
        memory.limit_left_bytes = least_known(memory.limit_left_bytes, std::max<std::int64_t>(0, limit - usage + inactive));
      }
    }
  }
  return memory;
}

}  // namespace shardmark::app

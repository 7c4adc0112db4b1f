#pragma once
// What the kernel's files tell of this node: memory and cgroups. What is not there stays unknown; nothing throws.

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::app {

/// The first line of a file, "" if there is none to read.
[[nodiscard]] std::string first_line(const std::string& path);
/// The number that a text begins with; -1 if it does not.
[[nodiscard]] std::int64_t number_in(const std::string& text);

/// This process's folders of a cgroup controller, innermost first: version 1, then version 2. In a container the path may name
/// the host's tree, so the mount's root follows. `root`: of the file system, tests name another.
[[nodiscard]] std::vector<std::string> cgroup_folders(const std::string& controller, const std::string& root = "");

/// -1: nobody tells, or no limit.
struct HostMemory {
  std::int64_t total_bytes = -1;
  std::int64_t available_bytes = -1;   // without swapping, by the kernel's estimate
  std::int64_t limit_bytes = -1;       // the least of the cgroups
  std::int64_t limit_left_bytes = -1;  // the least that a cgroup has left: files it could drop count as left

  /// What may still be allocated on this node.
  [[nodiscard]] std::int64_t free_bytes() const;
};
[[nodiscard]] HostMemory host_memory(const std::string& root = "");

}  // namespace shardmark::app

#pragma once
// Whether the buffers of all ranks fit, before one of them is allocated: the system would kill a rank, not refuse it. Pure.

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::app::bench {

/// Buffers of a message that a rank holds at once, in host memory and, on a device, there too.
inline constexpr std::int64_t kBuffers = 2;
/// What is free may be filled to so much: it is the kernel's estimate, and MPI and other processes want something, too.
inline constexpr double kFillable = 0.9;

/// What one rank says. -1: not known, and then it refuses nothing.
struct RankMemory {
  std::int64_t node = 0;
  std::int64_t host_buffers = kBuffers;  // in host memory
  std::int64_t host_free_bytes = -1;     // of the node
  std::int64_t device_free_bytes = -1;   // -1 without a device
  char device[48] = {};                  // UUID; "" without one
};

/// Throws ConfigError naming every node, by its host, and device where buffers of `message_bytes` each do not fit, with the
/// largest size that does. `ranks` and `hosts` by world rank.
void require_memory(const std::vector<RankMemory>& ranks, const std::vector<std::string>& hosts, std::int64_t message_bytes);

}  // namespace shardmark::app::bench

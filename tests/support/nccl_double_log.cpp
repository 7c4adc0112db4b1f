#include "tests/support/nccl_double_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/environment.hpp"
#include "base/random.hpp"

namespace shardmark::testing {
namespace {

std::string the_path = "SHM/direct";

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string expanded(const std::string& pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[++i] : '\0';
    path += next == 'h'   ? host_name()
            : next == 'p' ? std::to_string(getpid())
                          : std::string(1, next == '\0' ? pattern[i] : next);
  }
  return path;
}

/// nullptr where nobody asked. NCCL looks into the environment once; here a test may ask late, but never again for another
/// file.
std::FILE* log_file() {
  static std::FILE* file = nullptr;
  const auto pattern = base::environment_variable("NCCL_DEBUG_FILE");
  if (file == nullptr && pattern && base::environment_variable("NCCL_DEBUG") == "INFO") {
    file = std::fopen(expanded(*pattern).c_str(), "w");
    if (file != nullptr) {
      setlinebuf(file);
    }
  }
  return file;
}

void say(int device, const std::string& message) {
  if (std::FILE* file = log_file()) {
    fmt::print(file, "{}:{}:{} [{}] NCCL INFO {}\n", host_name(), getpid(), gettid(), device, message);
  }
}

}  // namespace

void set_nccl_path(const std::string& path) {
  the_path = path;
}

void log_nccl_init(int rank, int num_ranks, const std::string& id) {
  say(rank, "NCCL version 2.30.7+cuda13.3");
  say(rank, the_path.starts_with("NET/IB") ? "Using network IB" : "Using network Socket");
  const auto about =
      fmt::format("ncclCommInitRankConfig comm 0x55d0 rank {} nranks {} cudaDev {} nvmlDev {} busId 1b000 commId {:#x}", rank,
                  num_ranks, rank, rank, base::hash_text(id));
  say(rank, fmt::format("[Rank {}] {} - Init START", rank, about));
  say(rank, about + " - Init COMPLETE");
}

void log_nccl_split(int rank, int num_ranks, int parent_rank) {
  const auto about = fmt::format(
      "ncclCommSplit comm 0x55d1 rank {} nranks {} cudaDev {} nvmlDev {} busId 1b000 parent 0x55d0 childCount 1 color 0 key {}",
      rank, num_ranks, parent_rank, parent_rank, parent_rank);
  say(rank, about + "- Init START");
  say(rank, about + " - Init COMPLETE");
}

void log_nccl_paths(int rank, int num_ranks) {
  const bool net = the_path.starts_with("NET/");
  for (int peer = 0; peer < num_ranks; ++peer) {
    for (int channel = 0; channel < 2 && peer != rank; ++channel) {
      const std::string name =
          the_path.starts_with("SHM") ? fmt::format("Channel {:02}", channel) : fmt::format("Channel {:02}/0", channel);
      say(rank, fmt::format("{} : {}[{}] -> {}[{}]{} via {}", name, rank, rank, peer, peer, net ? " [send]" : "", the_path));
      if (net) {  // the other transports say it on the sending side only
        say(rank, fmt::format("{} : {}[{}] -> {}[{}] [receive] via {}", name, peer, peer, rank, rank, the_path));
      }
    }
  }
}

}  // namespace shardmark::testing

#include "app/one_voice.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.hpp"
#include "world/launcher.hpp"

namespace shardmark::app {
namespace {

constexpr auto kPrintGrace = std::chrono::seconds(2);
constexpr auto kPassGrace = std::chrono::milliseconds(50);

/// Where a variable is no number: as without a launcher.
world::Launcher launcher() {
  try {
    return world::find_launcher();
  } catch (const base::EnvironmentError&) {
    return {};
  }
}

}  // namespace

bool speaks_for_all() {
  if (launcher().rank <= 0) {
    return true;
  }
  std::this_thread::sleep_for(kPrintGrace);
  return false;
}

void let_results_pass() {
  std::fflush(stdout);
  if (!launcher().name.empty()) {
    std::this_thread::sleep_for(kPassGrace);
  }
}

}  // namespace shardmark::app

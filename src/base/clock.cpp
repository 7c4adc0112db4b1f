#include "base/clock.hpp"

#include <ctime>

namespace shardmark::base {
namespace {

std::string format_utc(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, format, &parts);
  return {text, length};
}

}  // namespace

std::string utc_timestamp() {
  return format_utc("%Y-%m-%dT%H:%M:%SZ");
}
std::string utc_compact() {
  return format_utc("%Y%m%d-%H%M%S");
}

}  // namespace shardmark::base

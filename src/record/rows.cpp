#include "record/rows.hpp"

namespace shardmark::record {

std::size_t fitting_length(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return text.size();
  }
  constexpr std::size_t kMaxContinuation = 3;  // a character of UTF-8 has at most four bytes
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  std::size_t cut = max_bytes;
  while (cut > 0 && max_bytes - cut < kMaxContinuation && continues(cut)) {
    --cut;
  }
  return continues(cut) ? max_bytes : cut;
}

}  // namespace shardmark::record

#pragma once
// The rule by which fixtures make weights that they do not store: a function of a tensor's name alone.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/random.hpp"

namespace shardmark::testing {

/// Fills a flattened tensor: center + amplitude x a number from -1 to 1 of (key, element).
inline void fill_from_name(std::span<float> out, std::string_view key, double amplitude, double center) {
  std::uint64_t state = base::hash_text(key);
  for (float& value : out) {
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    z ^= z >> 31U;
    value = static_cast<float>(center + amplitude * (2 * (static_cast<double>(z >> 40U) * 0x1.0p-24) - 1));
  }
}

}  // namespace shardmark::testing

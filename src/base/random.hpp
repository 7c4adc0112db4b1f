#pragma once
// Counter-based random numbers: any value is a pure function of (seed, stream, counter), so initial weights, data order
// and dropout masks do not depend on rank count or technique. Philox4x32-10 (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011).

#include <array>
#include <cstdint>
#include <string_view>

namespace shardmark::base {

/// 64-bit FNV-1a of a text: keys streams by name, configurations by text.
[[nodiscard]] constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325ULL) noexcept {
  for (const char character : text) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

/// Mixes a number into a hash; order matters.
[[nodiscard]] constexpr std::uint64_t hash_mix(std::uint64_t hash, std::uint64_t value) noexcept {
  std::uint64_t z = hash ^ (value + 0x9e3779b97f4a7c15ULL + (hash << 6U) + (hash >> 2U));
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

/// One Philox4x32-10 block: four 32-bit numbers of a key and a 128-bit counter.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                                            std::uint64_t counter_high) noexcept {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32U),
                                 static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32U)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// A stream of numbers addressed by element: element e is word e % 4 of block e / 4.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t salt = 0) noexcept
      : key_(hash_mix(hash_text(name), seed)), salt_(salt) {}

  [[nodiscard]] constexpr std::uint32_t bits(std::uint64_t element) const noexcept {
    return philox(key_, element / 4, salt_)[element % 4];
  }
  /// Uniform in [0, 1) with 24 bits, exact in fp32.
  [[nodiscard]] constexpr float uniform(std::uint64_t element) const noexcept {
    return static_cast<float>(bits(element) >> 8U) * 0x1.0p-24F;
  }
  /// Standard normal by Box-Muller: elements 2k and 2k + 1 share a pair of words.
  [[nodiscard]] float normal(std::uint64_t element) const noexcept;

  [[nodiscard]] constexpr std::uint64_t key() const noexcept { return key_; }
  [[nodiscard]] constexpr std::uint64_t salt() const noexcept { return salt_; }

 private:
  std::uint64_t key_;
  std::uint64_t salt_;
};

/// A random permutation of 0..size-1 without a table: a Feistel network over the next power of four, walked until it
/// lands inside. Pure function of (seed, salt, size); position -> index.
class RandomPermutation {
 public:
  RandomPermutation(std::uint64_t seed, std::uint64_t salt, std::int64_t size) noexcept;
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const noexcept;

 private:
  std::uint64_t key_;
  std::int64_t size_;
  unsigned half_bits_ = 1;
};

}  // namespace shardmark::base

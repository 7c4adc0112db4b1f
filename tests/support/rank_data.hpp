#pragma once
// Data for tests of collectives: values that differ by rank and element, and a serial tree sum that shares no code with
// the one under test.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "comm/communicator.hpp"

namespace shardmark::testing {

/// Owned elements of any dtype.
struct Elements {
  base::DType dtype = base::DType::fp32;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;

  Elements(base::DType type, std::int64_t n)
      : dtype(type), count(n), bytes(static_cast<std::size_t>(n) * base::size_of(type)) {}
  [[nodiscard]] comm::Buffer buffer() { return {bytes.data(), count, dtype}; }
  /// Elements [begin, begin + n) as a buffer.
  [[nodiscard]] comm::Buffer part(std::int64_t begin, std::int64_t n) {
    return {bytes.data() + static_cast<std::size_t>(begin) * base::size_of(dtype), n, dtype};
  }
  [[nodiscard]] double get(std::int64_t i) const {
    switch (dtype) {
      case base::DType::fp32: return read<float>(i);
      case base::DType::bf16: return base::widen_bf16(read<std::uint16_t>(i));
      case base::DType::fp64: return read<double>(i);
      case base::DType::int64: return static_cast<double>(read<std::int64_t>(i));
      case base::DType::uint8: return read<std::uint8_t>(i);
    }
    return 0;
  }
  void set(std::int64_t i, double value) {
    switch (dtype) {
      case base::DType::fp32: return write(i, static_cast<float>(value));
      case base::DType::bf16: return write(i, base::round_bf16(static_cast<float>(value)));
      case base::DType::fp64: return write(i, value);
      case base::DType::int64: return write(i, static_cast<std::int64_t>(value));
      case base::DType::uint8: return write(i, static_cast<std::uint8_t>(value));
    }
  }
  bool operator==(const Elements&) const = default;

 private:
  template <typename T>
  [[nodiscard]] T read(std::int64_t i) const {
    T value{};
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void write(std::int64_t i, T value) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
};

/// Values of a rank: over many magnitudes where the dtype has them, so that the order of additions shows in the bits.
inline Elements rank_values(base::DType dtype, std::int64_t count, int rank) {
  const base::RandomStream stream(7, "rank values", static_cast<std::uint64_t>(rank));
  const bool whole = dtype == base::DType::int64 || dtype == base::DType::uint8;
  Elements values(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<std::uint64_t>(2 * i);
    const double scale = std::ldexp(1.0, static_cast<int>(stream.bits(element + 1) % 12));
    values.set(i, whole ? stream.bits(element) % 50 : static_cast<double>(stream.normal(element)) * scale);
  }
  return values;
}

/// Sum of `values` [begin, end) in T along the tree split at the largest power of two below their number.
template <typename T>
T serial_tree(const std::vector<T>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) {
    return values[begin];
  }
  std::size_t half = 1;
  while (half * 2 < end - begin) {
    half *= 2;
  }
  return static_cast<T>(serial_tree(values, begin, begin + half) + serial_tree(values, begin + half, end));
}

/// What an ordered sum over `size` ranks of rank_values must be, bit for bit.
inline Elements expected_sum(base::DType dtype, std::int64_t count, int size) {
  std::vector<Elements> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.push_back(rank_values(dtype, count, r));
  }
  Elements sum(dtype, count);
  const bool narrow = dtype == base::DType::fp32 || dtype == base::DType::bf16;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<float> narrow_values;
    std::vector<double> wide_values;
    for (const Elements& rank : ranks) {
      narrow_values.push_back(static_cast<float>(rank.get(i)));
      wide_values.push_back(rank.get(i));
    }
    sum.set(i, narrow ? static_cast<double>(serial_tree(narrow_values, 0, ranks.size()))
                      : serial_tree(wide_values, 0, ranks.size()));
  }
  return sum;
}

}  // namespace shardmark::testing

#include "app/bench/values.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::app::bench {
namespace {

/// Whole numbers up to this one, and so all partial sums that stay within it, are exact in the type.
std::int64_t exact_limit(base::DType dtype) {
  switch (dtype) {
    case base::DType::uint8: return 255;
    case base::DType::bf16: return 256;
    case base::DType::fp32: return std::int64_t{1} << 24;
    case base::DType::fp64: return std::int64_t{1} << 53;
    case base::DType::int64: return std::int64_t{1} << 62;
  }
  return 1;
}

/// The number that rank `rank` holds in element `element` < kPeriod.
class Numbers {
 public:
  Numbers(const ValueKind& kind, int rank)
      : limit_(exact_limit(kind.dtype)),
        largest_(std::max<std::int64_t>(1, limit_ / kind.terms)),
        stride_((kind.terms + limit_ - 1) / limit_),
        rank_(rank),
        is_signed_(kind.dtype != base::DType::uint8),
        hash_(base::hash_mix(kind.salt, static_cast<std::uint64_t>(rank))) {}

  [[nodiscard]] std::int64_t operator()(std::int64_t element) const {
    // More ranks than the type counts exactly: in each element every stride-th holds a number, the others 0.
    if (stride_ > 1 && (rank_ + element) % stride_ != 0) {
      return 0;
    }
    const std::uint64_t bits = base::hash_mix(hash_, static_cast<std::uint64_t>(element));
    const auto below = static_cast<std::uint64_t>(is_signed_ ? 2 * largest_ + 1 : largest_ + 1);
    return static_cast<std::int64_t>(bits % below) - (is_signed_ ? largest_ : 0);
  }

 private:
  std::int64_t limit_;
  std::int64_t largest_;
  std::int64_t stride_;
  std::int64_t rank_;
  bool is_signed_;
  std::uint64_t hash_;
};

template <typename Stored, typename Convert>
std::vector<std::byte> stored(const std::vector<std::int64_t>& numbers, const Convert& convert) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Stored));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Stored value = convert(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &value, sizeof(Stored));
  }
  return bytes;
}

Values values_from(base::DType dtype, const std::vector<std::int64_t>& numbers) {
  using Number = std::int64_t;
  switch (dtype) {
    case base::DType::fp32: return {dtype, stored<float>(numbers, [](Number n) { return static_cast<float>(n); })};
    case base::DType::bf16:
      return {dtype, stored<std::uint16_t>(numbers, [](Number n) { return base::round_bf16(static_cast<float>(n)); })};
    case base::DType::fp64: return {dtype, stored<double>(numbers, [](Number n) { return static_cast<double>(n); })};
    case base::DType::int64: return {dtype, stored<Number>(numbers, [](Number n) { return n; })};
    case base::DType::uint8:
      return {dtype, stored<std::uint8_t>(numbers, [](Number n) { return static_cast<std::uint8_t>(n); })};
  }
  return {dtype, {}};
}

std::size_t num_entries(std::int64_t count) {
  return static_cast<std::size_t>(std::min(count, kPeriod));
}

}  // namespace

Values::Values(base::DType dtype, std::vector<std::byte> entries) : dtype_(dtype), entries_(std::move(entries)) {}

template <typename Piece>
void Values::for_pieces(comm::Buffer buffer, std::int64_t first, const Piece& piece) const {
  SM_CHECK(buffer.dtype == dtype_, "a buffer is compared with values of its own type");
  const auto size = static_cast<std::int64_t>(base::size_of(dtype_));
  auto* at = static_cast<std::byte*>(buffer.data);
  for (std::int64_t done = 0; done < buffer.count;) {
    const std::int64_t entry = (first + done) % kPeriod;
    const std::int64_t length = std::min(buffer.count - done, kPeriod - entry);
    SM_CHECK((entry + length) * size <= static_cast<std::int64_t>(entries_.size()), "fewer values were made than are used");
    piece(at + done * size, entries_.data() + entry * size, length * size);
    done += length;
  }
}

void Values::write(comm::Buffer buffer, std::int64_t first) const {
  for_pieces(buffer, first, [](std::byte* into, const std::byte* from, std::int64_t bytes) {
    std::memcpy(into, from, static_cast<std::size_t>(bytes));
  });
}

std::int64_t Values::count_wrong(comm::Buffer buffer, std::int64_t first) const {
  const auto size = static_cast<std::int64_t>(base::size_of(dtype_));
  std::int64_t wrong = 0;
  for_pieces(buffer, first, [&](const std::byte* found, const std::byte* expected, std::int64_t bytes) {
    if (std::memcmp(found, expected, static_cast<std::size_t>(bytes)) == 0) {
      return;
    }
    for (std::int64_t at = 0; at < bytes; at += size) {
      wrong += std::memcmp(found + at, expected + at, static_cast<std::size_t>(size)) == 0 ? 0 : 1;
    }
  });
  return wrong;
}

Values values_of(const ValueKind& kind, int rank, std::int64_t count) {
  const Numbers number(kind, rank);
  std::vector<std::int64_t> numbers(num_entries(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = number(static_cast<std::int64_t>(i));
  }
  return values_from(kind.dtype, numbers);
}

Values reduced_values(const ValueKind& kind, comm::Reduction reduction, std::int64_t count) {
  std::vector<std::int64_t> numbers;
  for (int rank = 0; rank < kind.terms; ++rank) {
    const Numbers number(kind, rank);
    if (rank == 0) {
      numbers.resize(num_entries(count));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t value = number(static_cast<std::int64_t>(i));
      numbers[i] = rank == 0                           ? value
                   : reduction == comm::Reduction::sum ? numbers[i] + value
                   : reduction == comm::Reduction::max ? std::max(numbers[i], value)
                                                       : std::min(numbers[i], value);
    }
  }
  return values_from(kind.dtype, numbers);
}

}  // namespace shardmark::app::bench

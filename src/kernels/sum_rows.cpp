#include "kernels/sum_rows.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace shardmark::kernels {

template <typename T>
void sum_rows(const T* rows_NC, std::span<const std::int64_t> ids, std::int64_t width, T* table) {
  std::vector<std::int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id_of = [&](std::int64_t row) { return ids[static_cast<std::size_t>(row)]; };
  // Rows of one id come together, in their order.
  std::ranges::sort(order, {}, [&](std::int64_t row) { return std::pair(id_of(row), row); });
  std::vector<float> sum(static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < order.size();) {
    const std::int64_t id = id_of(order[i]);
    std::ranges::fill(sum, 0.0F);
    for (; i < order.size() && id_of(order[i]) == id; ++i) {
      const T* row = rows_NC + order[i] * width;
      for (std::int64_t c = 0; c < width; ++c) {
        sum[static_cast<std::size_t>(c)] += Element<T>::widen(row[c]);
      }
    }
    T* out = table + id * width;
    for (std::int64_t c = 0; c < width; ++c) {
      out[c] = Element<T>::round(sum[static_cast<std::size_t>(c)]);
    }
  }
}

template void sum_rows(const float*, std::span<const std::int64_t>, std::int64_t, float*);
template void sum_rows(const Bf16*, std::span<const std::int64_t>, std::int64_t, Bf16*);

}  // namespace shardmark::kernels

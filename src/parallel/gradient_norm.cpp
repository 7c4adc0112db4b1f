#include "parallel/gradient_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "optim/vector_ops.hpp"

namespace shardmark::parallel {
namespace {

using comm::Purpose;

/// Calls `use` with fp32 stretches of every part. A stretch of a part in another type is widened into a buffer.
template <typename Use>
void for_each_stretch(const std::vector<torch::Tensor>& parts, const Use& use) {
  constexpr std::int64_t kChunk = 16 * 1024;
  torch::Tensor widened;
  for (const auto& part : parts) {
    const bool converts = part.scalar_type() != at::kFloat;
    const std::int64_t step = converts ? kChunk : std::max<std::int64_t>(1, part.numel());
    for (std::int64_t begin = 0; begin < part.numel(); begin += step) {
      const std::int64_t count = std::min(step, part.numel() - begin);
      const float* data = nullptr;
      if (converts) {
        if (!widened.defined()) {
          widened = at::empty({kChunk}, at::kFloat);
        }
        widened.narrow(0, 0, count).copy_(part.narrow(0, begin, count));
        data = widened.const_data_ptr<float>();
      } else {
        data = part.const_data_ptr<float>() + begin;
      }
      use(std::span<const float>(data, static_cast<std::size_t>(count)));
    }
  }
}

GradientNorm fast_norm(const std::vector<torch::Tensor>& parts, comm::Communicator* shard) {
  double sum = 0;
  for_each_stretch(parts, [&](std::span<const float> values) { sum += optim::sum_of_squares(values); });
  if (shard != nullptr) {
    shard->all_reduce(comm::host_buffer(&sum, 1, base::DType::fp64), Purpose::control, 0).wait();
  }
  const double norm = std::sqrt(sum);
  return {norm, std::isfinite(norm)};
}

GradientNorm exact_norm(const std::vector<torch::Tensor>& parts, comm::Communicator* shard) {
  float largest = 0;
  for_each_stretch(parts, [&](std::span<const float> values) {
    const float here = optim::largest_magnitude(values);
    largest = std::isnan(here) || here > largest ? here : largest;
  });
  if (shard != nullptr) {
    shard
        ->all_reduce(comm::host_buffer(&largest, 1, base::DType::fp32), Purpose::control, 0, comm::SumOrder::ordered,
                     comm::Reduction::max)
        .wait();
  }
  if (!std::isfinite(largest)) {
    return {std::numeric_limits<double>::quiet_NaN(), false};
  }
  const int exponent = optim::exact_scale_exponent(largest);
  optim::ExactSquares sum;
  for_each_stretch(
      parts, [&](std::span<const float> values) { sum = optim::add(sum, optim::exact_sum_of_squares(values, exponent)); });
  if (shard == nullptr) {
    return {optim::norm_of(sum, exponent), true};
  }
  std::array<std::uint64_t, 2> mine{sum.low, sum.high};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(shard->size()));
  shard
      ->all_gather(comm::host_buffer(mine.data(), 2, base::DType::int64),
                   comm::host_buffer(all.data(), static_cast<std::int64_t>(all.size()), base::DType::int64), Purpose::control,
                   0)
      .wait();
  optim::ExactSquares total;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    total = optim::add(total, {all[i], all[i + 1]});
  }
  return {optim::norm_of(total, exponent), true};
}

}  // namespace

GradientNorm gradient_norm(const std::vector<torch::Tensor>& parts, comm::Communicator* shard, comm::SumOrder order) {
  const torch::NoGradGuard no_grad;
  return order == comm::SumOrder::fast ? fast_norm(parts, shard) : exact_norm(parts, shard);
}

}  // namespace shardmark::parallel

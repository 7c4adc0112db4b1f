#include "model/layers.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::model {
namespace {

/// Writes 0 or 1/(1-p) for `rows` rows of `width` elements. Row salts carry step and slot, blocks of four share one counter.
void fill_mask(float* mask, std::int64_t rows, std::int64_t width, const ForwardKey& key, std::string_view name,
               double probability) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(probability * 0x1.0p+24));
  const auto keep = static_cast<float>(1.0 / (1.0 - probability));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto slot = static_cast<std::uint64_t>(key.first_slot + row);
    const base::RandomStream stream(key.seed, name, base::hash_mix(static_cast<std::uint64_t>(key.step), slot));
    for (std::int64_t block = 0; block * 4 < width; ++block) {
      const auto words = base::philox(stream.key(), static_cast<std::uint64_t>(block), stream.salt());
      for (std::int64_t i = block * 4; i < std::min(width, block * 4 + 4); ++i) {
        mask[row * width + i] = (words[static_cast<std::size_t>(i % 4)] >> 8U) < threshold ? 0.0F : keep;
      }
    }
  }
}

}  // namespace

Linear::Linear(ParameterList& list, const std::string& name, std::int64_t width_in, std::int64_t width_out) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(width_in));
  weight_ = &list.add(name + ".weight", {width_out, width_in}, Init::uniform(-bound, bound));
  bias_ = &list.add(name + ".bias", {width_out}, Init::uniform(-bound, bound));
}

torch::Tensor Linear::forward(const torch::Tensor& x_NI) const {
  return at::linear(x_NI.to(weight_->value.scalar_type()), weight_->value, bias_->value);
}

Dropout::Dropout(std::string name, double probability) : name_(std::move(name)), probability_(probability) {
  SM_CHECK(probability >= 0 && probability < 1, "dropout probability outside [0, 1)");
}

torch::Tensor Dropout::forward(const torch::Tensor& x_NI, const ForwardKey& key) const {
  if (probability_ == 0 || !key.training) {
    return x_NI;
  }
  torch::Tensor mask_NI = at::empty(x_NI.sizes(), at::TensorOptions(at::kFloat).pinned_memory(x_NI.is_cuda()));
  fill_mask(mask_NI.data_ptr<float>(), x_NI.size(0), x_NI.numel() / x_NI.size(0), key, name_, probability_);
  return x_NI * mask_NI.to(x_NI.options(), /*non_blocking=*/true);
}

}  // namespace shardmark::model

#include "model/batch_norm.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/unit.hpp"

namespace shardmark::model {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor normalise_by(const torch::Tensor& x_NCHW, const torch::Tensor& weight_C, const torch::Tensor& bias_C,
                           const torch::Tensor& mean_C, const torch::Tensor& variance_C) {
  return at::batch_norm(x_NCHW, weight_C, bias_C, mean_C, variance_C, /*training=*/false, kMomentum, kEpsilon, false);
}

void move_running(torch::Tensor& running, const torch::Tensor& seen_C) {
  running.mul_(1 - kMomentum).add_(seen_C, kMomentum);
}

/// Undefined where they stay as they are. Not arguments of their own: autograd refuses undefined tensors.
struct Running {
  torch::Tensor mean_C, variance_C;
};

struct Synchronised : torch::autograd::Function<Synchronised> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_NCHW, const torch::Tensor& weight_C,
                               const torch::Tensor& bias_C, Running running, bool counts, SumOverRanks* sums) {
    const std::int64_t channels = x_NCHW.size(1);
    // Count, sums, and sums of squares about zero. In doubles nothing is lost that fp32 rows held.
    torch::Tensor totals = at::zeros({2 * channels + 1}, x_NCHW.options().dtype(at::kDouble));
    if (counts) {
      const auto rows = static_cast<double>(x_NCHW.numel() / channels);
      const auto [variance_C, mean_C] = at::var_mean(x_NCHW, at::IntArrayRef{0, 2, 3}, /*correction=*/0);
      const torch::Tensor mean = mean_C.to(at::kDouble);
      totals.narrow(0, 0, 1).fill_(rows);
      totals.narrow(0, 1, channels).copy_(mean * rows);
      totals.narrow(0, 1 + channels, channels).copy_((variance_C.to(at::kDouble) + mean.square()) * rows);
    }
    if (sums != nullptr) {
      sums->add(totals);
    }
    const torch::Tensor count = totals.narrow(0, 0, 1).clamp_min(1);
    const torch::Tensor mean_C = totals.narrow(0, 1, channels) / count;
    const torch::Tensor variance_C = (totals.narrow(0, 1 + channels, channels) / count - mean_C.square()).clamp_min(0);
    if (running.mean_C.defined()) {
      move_running(running.mean_C, mean_C.to(at::kFloat));
      move_running(running.variance_C, (variance_C * count / (count - 1).clamp_min(1)).to(at::kFloat));
    }
    const torch::Tensor mean = mean_C.to(at::kFloat);
    const torch::Tensor variance = variance_C.to(at::kFloat);
    context->save_for_backward({x_NCHW, weight_C, mean, variance, count});
    context->saved_data["counts"] = counts;
    context->saved_data["sums"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(sums));
    return normalise_by(x_NCHW, weight_C, bias_C, mean, variance);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& [x_NCHW, weight_C, mean_C, variance_C] = std::tie(saved[0], saved[1], saved[2], saved[3]);
    const torch::Tensor& count = saved[4];
    auto* sums = reinterpret_cast<SumOverRanks*>(static_cast<std::intptr_t>(context->saved_data["sums"].toInt()));
    // As if the statistics were constants: d weight = sum of gradient x normalised, d bias = sum of gradient.
    auto [grad_x, grad_weight, grad_bias] = at::native_batch_norm_backward(
        gradients[0], x_NCHW, weight_C, mean_C, variance_C, {}, {}, /*train=*/false, kEpsilon, {true, true, true});
    const std::int64_t channels = x_NCHW.size(1);
    torch::Tensor totals = at::cat({grad_weight.to(at::kDouble), grad_bias.to(at::kDouble)});
    if (sums != nullptr) {
      sums->add(totals);
    }
    if (context->saved_data["counts"].toBool()) {
      // And what reaches x through them: - weight / deviation x (mean of gradient + normalised x mean of gradient x
      // normalised).
      const torch::Tensor inverse_C = (variance_C.to(at::kDouble) + kEpsilon).rsqrt();
      const torch::Tensor scale_C = weight_C.to(at::kDouble) * inverse_C / count;
      const torch::Tensor slope_C = scale_C * inverse_C * totals.narrow(0, 0, channels);
      const torch::Tensor shift_C = slope_C * mean_C.to(at::kDouble) - scale_C * totals.narrow(0, channels, channels);
      const auto spread = [&](const torch::Tensor& of_C) { return of_C.to(grad_x.scalar_type()).view({1, -1, 1, 1}); };
      grad_x.addcmul_(x_NCHW, spread(slope_C), -1).add_(spread(shift_C));
    }
    return {grad_x, grad_weight, grad_bias, {}, {}, {}};
  }
};

}  // namespace

torch::Tensor synchronised_batch_norm(const torch::Tensor& x_NCHW, const torch::Tensor& weight_C, const torch::Tensor& bias_C,
                                      torch::Tensor running_mean, torch::Tensor running_variance, bool counts,
                                      SumOverRanks* sums) {
  return Synchronised::apply(x_NCHW, weight_C, bias_C, Running{std::move(running_mean), std::move(running_variance)}, counts,
                             sums);
}

BatchNorm::BatchNorm(ParameterList& list, const std::string& name, std::int64_t channels, BatchStatistics statistics)
    : list_(&list), statistics_(statistics) {
  if (statistics == BatchStatistics::frozen) {
    fixed_weight_ = &list.add_buffer(name + ".weight", at::ones({channels}));
    fixed_bias_ = &list.add_buffer(name + ".bias", at::zeros({channels}));
  } else {
    weight_ = &list.add(name + ".weight", {channels}, Init::constant(1));
    bias_ = &list.add(name + ".bias", {channels}, Init::constant(0));
  }
  const bool moves_apart = statistics == BatchStatistics::local;
  running_mean_ = &list.add_buffer(name + ".running_mean", at::zeros({channels}), moves_apart);
  running_variance_ = &list.add_buffer(name + ".running_var", at::ones({channels}), moves_apart);
  if (statistics != BatchStatistics::frozen) {
    batches_ = &list.add_buffer(name + ".num_batches_tracked", at::zeros({}, at::kLong));
  }
  if (statistics == BatchStatistics::sync) {
    list.declare_sums();
  }
}

torch::Tensor BatchNorm::weight() const {
  return weight_ != nullptr ? weight_->value.to(at::kFloat) : fixed_weight_->value;
}

torch::Tensor BatchNorm::bias() const {
  return bias_ != nullptr ? bias_->value.to(at::kFloat) : fixed_bias_->value;
}

torch::Tensor BatchNorm::normalise(const torch::Tensor& x_NCHW, bool by_batch, bool updates) const {
  const bool uses = !by_batch || updates;
  return at::batch_norm(x_NCHW, weight(), bias(), uses ? running_mean_->value : torch::Tensor(),
                        uses ? running_variance_->value : torch::Tensor(), by_batch, kMomentum, kEpsilon, false);
}

torch::Tensor BatchNorm::forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const {
  SM_DCHECK(pass.counted_rows == 0 || pass.counted_rows == x_NCHW.size(0), "either all rows count or none");
  const bool counts = pass.counted_rows > 0;
  const bool updates = !runs_again();
  if (statistics_ == BatchStatistics::frozen) {
    // One factor and one summand of each channel, rounded as the public implementation's.
    const torch::Tensor scale_C = fixed_weight_->value * (running_variance_->value + kEpsilon).rsqrt();
    const torch::Tensor shift_C = fixed_bias_->value - running_mean_->value * scale_C;
    const auto spread = [&](const torch::Tensor& of_C) { return of_C.to(x_NCHW.scalar_type()).view({1, -1, 1, 1}); };
    return x_NCHW * spread(scale_C) + spread(shift_C);
  }
  if (!pass.training || statistics_ == BatchStatistics::running) {
    return normalise(x_NCHW, /*by_batch=*/false, /*updates=*/false);
  }
  if (updates) {
    const torch::NoGradGuard no_grad;
    batches_->value.add_(1);
  }
  if (statistics_ == BatchStatistics::local) {
    return normalise(x_NCHW, counts, updates);
  }
  return synchronised_batch_norm(x_NCHW, weight(), bias(), updates ? running_mean_->value : torch::Tensor(),
                                 updates ? running_variance_->value : torch::Tensor(), counts, list_->sums());
}

}  // namespace shardmark::model

#include "model/linear_cross_entropy.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kHostBytes = std::int64_t{16} << 20;
constexpr std::int64_t kDeviceBytes = std::int64_t{256} << 20;

/// What one piece adds. `logits_RV` becomes the gradient by the logits if `wants_gradient`.
torch::Tensor loss_of_piece(torch::Tensor& logits_RV, const torch::Tensor& targets_R, bool wants_gradient) {
  const torch::Tensor counts_R1 = targets_R.ne(kNoTarget).unsqueeze(1);
  const torch::Tensor targets_R1 = targets_R.clamp_min(0).unsqueeze(1);
  const torch::Tensor log_sum_R1 = at::logsumexp(logits_RV, 1, /*keepdim=*/true);
  const torch::Tensor loss = (log_sum_R1 - logits_RV.gather(1, targets_R1)).masked_fill(counts_R1.logical_not(), 0).sum();
  if (wants_gradient) {
    logits_RV.sub_(log_sum_R1).exp_();
    logits_RV.scatter_add_(1, targets_R1, at::full_like(log_sum_R1, -1));
    logits_RV.masked_fill_(counts_R1.logical_not(), 0);
  }
  return loss;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_RC, const torch::Tensor& weight_VC,
                               const torch::Tensor& targets_R, std::int64_t rows_at_once, bool with_gradients) {
    const bool wants_dx = with_gradients && x_RC.requires_grad();
    const bool wants_dweight = with_gradients && weight_VC.requires_grad();
    torch::Tensor dx_RC = wants_dx ? at::empty_like(x_RC) : torch::Tensor();
    torch::Tensor dweight_VC = wants_dweight ? at::zeros_like(weight_VC) : torch::Tensor();
    torch::Tensor sum = at::zeros({}, x_RC.options().dtype(at::kFloat));
    for (std::int64_t first = 0; first < x_RC.size(0); first += rows_at_once) {
      const std::int64_t last = std::min(first + rows_at_once, x_RC.size(0));
      const torch::Tensor piece_RC = x_RC.slice(0, first, last);
      torch::Tensor logits_RV = at::linear(piece_RC, weight_VC).to(at::kFloat);
      sum += loss_of_piece(logits_RV, targets_R.slice(0, first, last), wants_dx || wants_dweight);
      const torch::Tensor dlogits_RV = logits_RV.to(x_RC.scalar_type());
      if (wants_dx) {
        torch::Tensor part = dx_RC.slice(0, first, last);
        at::mm_out(part, dlogits_RV, weight_VC);
      }
      if (wants_dweight) {
        dweight_VC.addmm_(dlogits_RV.t(), piece_RC);
      }
    }
    context->saved_data["dx"] = dx_RC;
    context->saved_data["dweight"] = dweight_VC;
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto scaled = [&](const char* name) {
      torch::Tensor made = context->saved_data.at(name).toTensor();
      context->saved_data[name] = torch::Tensor();
      return made.defined() ? made.mul_(gradients[0]) : made;
    };
    return {scaled("dx"), scaled("dweight"), {}, {}, {}};
  }
};

}  // namespace

torch::Tensor linear_cross_entropy_sum(const torch::Tensor& x_RC, const torch::Tensor& weight_VC,
                                       const torch::Tensor& targets_R, std::int64_t rows_at_once) {
  SM_CHECK(rows_at_once >= 1 && targets_R.dim() == 1 && targets_R.size(0) == x_RC.size(0), "one target a row");
  return LinearCrossEntropy::apply(x_RC, weight_VC, targets_R, rows_at_once, at::GradMode::is_enabled());
}

std::int64_t rows_of_a_piece(const torch::Tensor& weight_VC) {
  const std::int64_t row_bytes = weight_VC.size(0) * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(1, (weight_VC.is_cpu() ? kHostBytes : kDeviceBytes) / row_bytes);
}

}  // namespace shardmark::model

#include "model/embedding.hpp"

#include <cmath>
#include <span>

#include "base/error.hpp"
#include "kernels/sum_rows.hpp"

namespace shardmark::model {
namespace {

using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
void sum_rows(const torch::Tensor& dy_NC, const torch::Tensor& ids_N, const torch::Tensor& dweight_VC) {
  kernels::sum_rows(static_cast<const T*>(dy_NC.const_data_ptr()),
                    std::span(ids_N.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(ids_N.numel())), dy_NC.size(1),
                    static_cast<T*>(dweight_VC.mutable_data_ptr()));
}

/// LibTorch's own backward runs a tensor operation for every id.
struct LookUp : torch::autograd::Function<LookUp> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& weight_VC, const torch::Tensor& ids_N) {
    context->save_for_backward({ids_N});
    context->saved_data["rows"] = weight_VC.size(0);
    return at::index_select(weight_VC, 0, ids_N);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::Tensor ids_N = context->get_saved_variables()[0].contiguous();
    const torch::Tensor dy_NC = gradients[0].contiguous();
    torch::Tensor dweight_VC = at::zeros({context->saved_data["rows"].toInt(), dy_NC.size(1)}, dy_NC.options());
    if (dy_NC.scalar_type() == at::kFloat) {
      sum_rows<float>(dy_NC, ids_N, dweight_VC);
    } else {
      SM_CHECK(dy_NC.scalar_type() == at::kBFloat16, "embeddings are fp32 or bf16");
      sum_rows<Bf16>(dy_NC, ids_N, dweight_VC);
    }
    return {dweight_VC, {}};
  }
};

}  // namespace

Embedding::Embedding(ParameterList& list, const std::string& name, std::int64_t rows, std::int64_t width) {
  const double bound = std::sqrt(1.0 / static_cast<double>(rows));
  weight_ = &list.add(name + ".weight", {rows, width}, Init::uniform(-bound, bound));
}

torch::Tensor Embedding::forward(const torch::Tensor& ids_N) const {
  return ids_N.is_cpu() ? LookUp::apply(weight_->value, ids_N) : at::embedding(weight_->value, ids_N);
}

}  // namespace shardmark::model

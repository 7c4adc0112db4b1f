#include "model/fused.hpp"

#include "base/error.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"

namespace shardmark::model {
namespace {

using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Calls `loop(T{})` with T the stored type of `x`.
template <typename Loop>
void with_type_of(const torch::Tensor& x, Loop loop) {
  SM_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "fused operations take fp32 and bf16");
  if (x.scalar_type() == at::kFloat) {
    loop(float{});
  } else {
    loop(Bf16{});
  }
}

template <typename T>
const T* read(const torch::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <typename T>
T* write(const torch::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given, const torch::Tensor& weight,
                               double epsilon) {
    const torch::Tensor x = given.contiguous();
    torch::Tensor y = at::empty_like(x);
    torch::Tensor inverse = at::empty({x.numel() / weight.numel()}, at::kFloat);
    with_type_of(x, [&]<typename T>(T) {
      kernels::rms_norm(read<T>(x), read<T>(weight), epsilon, {inverse.numel(), weight.numel()}, write<T>(y),
                        write<float>(inverse));
    });
    context->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    const torch::Tensor& weight = saved[1];
    const torch::Tensor dy = gradients[0].contiguous();
    torch::Tensor dx = context->needs_input_grad(0) ? at::empty_like(x) : torch::Tensor();
    torch::Tensor dweight = context->needs_input_grad(1) ? at::empty_like(weight) : torch::Tensor();
    with_type_of(x, [&]<typename T>(T) {
      kernels::rms_norm_backward<T>({read<T>(dy), read<T>(x), read<T>(weight), read<float>(saved[2])},
                                    {saved[2].numel(), weight.numel()}, dx.defined() ? write<T>(dx) : nullptr,
                                    dweight.defined() ? write<T>(dweight) : nullptr);
    });
    return {dx, dweight, {}};
  }
};

torch::Tensor turn(const torch::Tensor& given, const torch::Tensor& cos_TD, const torch::Tensor& sin_TD,
                   kernels::RotaryDirection direction) {
  const torch::Tensor x_NTHD = given.contiguous();
  torch::Tensor y_NTHD = at::empty_like(x_NTHD);
  const kernels::RotaryShape shape{x_NTHD.size(0) * x_NTHD.size(1), x_NTHD.size(2), x_NTHD.size(3),
                                   cos_TD.numel() / x_NTHD.size(3)};
  with_type_of(x_NTHD, [&]<typename T>(T) {
    kernels::rotate(read<T>(x_NTHD), {read<float>(cos_TD), read<float>(sin_TD)}, shape, direction, write<T>(y_NTHD));
  });
  return y_NTHD;
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_NTHD, const torch::Tensor& cos_TD,
                               const torch::Tensor& sin_TD) {
    context->save_for_backward({cos_TD, sin_TD});
    return turn(x_NTHD, cos_TD, sin_TD, kernels::RotaryDirection::forward);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {turn(gradients[0], saved[0], saved[1], kernels::RotaryDirection::backward), {}, {}};
  }
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given_gate, const torch::Tensor& given_up) {
    const torch::Tensor gate = given_gate.contiguous();
    const torch::Tensor up = given_up.contiguous();
    torch::Tensor y = at::empty_like(gate);
    with_type_of(gate, [&]<typename T>(T) { kernels::swiglu(read<T>(gate), read<T>(up), gate.numel(), write<T>(y)); });
    context->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor& gate = saved[0];
    const torch::Tensor& up = saved[1];
    const torch::Tensor dy = gradients[0].contiguous();
    torch::Tensor dgate = at::empty_like(gate);
    torch::Tensor dup = at::empty_like(up);
    with_type_of(gate, [&]<typename T>(T) {
      kernels::swiglu_backward<T>({read<T>(dy), read<T>(gate), read<T>(up)}, gate.numel(), write<T>(dgate), write<T>(dup));
    });
    return {dgate, dup};
  }
};

}  // namespace

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  SM_CHECK(x.scalar_type() == weight.scalar_type() && x.size(-1) == weight.numel(), "a norm's weight does not fit its input");
  return x.is_cpu() ? RmsNormFunction::apply(x, weight, epsilon) : rms_norm_chain(x, weight, epsilon);
}

torch::Tensor rotate(const torch::Tensor& x_NTHD, const torch::Tensor& cos_TD, const torch::Tensor& sin_TD) {
  const std::int64_t rows = x_NTHD.size(0) * x_NTHD.size(1);
  const std::int64_t table_rows = cos_TD.numel() / x_NTHD.size(3);
  SM_CHECK(table_rows == rows || table_rows == x_NTHD.size(1), "tables of rotary positions do not fit the heads");
  return x_NTHD.is_cpu() ? RotateFunction::apply(x_NTHD, cos_TD, sin_TD) : rotate_chain(x_NTHD, cos_TD, sin_TD);
}

torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  SM_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "the halves of a gated MLP differ");
  return gate.is_cpu() ? SwigluFunction::apply(gate, up) : swiglu_chain(gate, up);
}

torch::Tensor rms_norm_chain(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  const torch::Tensor wide = x.to(at::kFloat);
  const torch::Tensor normalised = wide * at::rsqrt(wide.square().mean(-1, true) + epsilon);
  return normalised.to(x.scalar_type()) * weight;
}

torch::Tensor rotate_chain(const torch::Tensor& x_NTHD, const torch::Tensor& cos_TD, const torch::Tensor& sin_TD) {
  const torch::Tensor x_NHTD = x_NTHD.transpose(1, 2).to(at::kFloat);
  const auto halves = x_NHTD.chunk(2, -1);
  const torch::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return (x_NHTD * cos_TD + turned * sin_TD).to(x_NTHD.scalar_type()).transpose(1, 2);
}

torch::Tensor swiglu_chain(const torch::Tensor& gate, const torch::Tensor& up) {
  return at::silu(gate) * up;
}

}  // namespace shardmark::model

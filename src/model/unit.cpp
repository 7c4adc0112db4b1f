#include "model/unit.hpp"

#include <utility>

#include "base/error.hpp"

namespace shardmark::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Identity whose backward tells the observer: at a unit's output before its backward, at its input after it.
struct Mark : torch::autograd::Function<Mark> {
  enum class Place : std::uint8_t { input, output };

  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, UnitObserver* observer, std::int64_t unit,
                               Place place) {
    context->saved_data["observer"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(observer));
    context->saved_data["unit"] = unit;
    context->saved_data["output"] = place == Place::output;
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto* observer = reinterpret_cast<UnitObserver*>(static_cast<std::intptr_t>(context->saved_data["observer"].toInt()));
    const std::int64_t unit = context->saved_data["unit"].toInt();
    if (context->saved_data["output"].toBool()) {
      observer->before_backward(unit);
    } else {
      observer->after_input_gradient(unit);
    }
    return {gradients[0], {}, {}, {}};
  }
};

/// Runs the body without a graph; backward runs it again with one. `anchor` makes the output need a gradient when only the
/// unit's parameters do: they are not inputs here, or their gradient hooks would fire twice.
struct Recompute : torch::autograd::Function<Recompute> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, const torch::Tensor& /*anchor*/,
                               const UnitBody* body) {
    context->save_for_backward({input});
    context->saved_data["needs_gradient"] = input.requires_grad();
    context->saved_data["body"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(*body));
    return (*body)(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["body"].toCapsule());
    torch::Tensor input = context->get_saved_variables()[0].detach();
    if (context->saved_data["needs_gradient"].toBool()) {
      input.requires_grad_();
    }
    torch::Tensor output;
    {
      const torch::AutoGradMode with_graph(true);
      output = holder->body(input);
    }
    torch::autograd::backward({output}, {gradients[0]});
    return {input.mutable_grad(), {}, {}};
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(UnitBody held) : body(std::move(held)) {}
    UnitBody body;
  };
};

bool has_trainable(const ParameterList& list, std::int64_t unit) {
  for (const auto& parameter : list.parameters()) {
    if (parameter.unit == unit && parameter.trainable) {
      return true;
    }
  }
  return false;
}

torch::Tensor run_body(const ParameterList& list, std::int64_t unit, const torch::Tensor& input, const UnitBody& body,
                       bool checkpointable) {
  if (!checkpointable || !list.checkpointing() || !at::GradMode::is_enabled()) {
    return body(input);
  }
  const torch::Tensor anchor = at::empty({0}, input.options().dtype(at::kFloat)).requires_grad_(has_trainable(list, unit));
  return Recompute::apply(input, anchor, &body);
}

}  // namespace

torch::Tensor run_unit(const ParameterList& list, std::int64_t unit, const torch::Tensor& input, const UnitBody& body,
                       bool checkpointable) {
  SM_DCHECK(unit >= 0 && unit < static_cast<std::int64_t>(list.units().size()), "no such unit");
  UnitObserver* observer = list.observer();
  if (observer == nullptr) {
    return run_body(list, unit, input, body, checkpointable);
  }
  const bool marked = at::GradMode::is_enabled() && input.requires_grad();
  const torch::Tensor entered = marked ? Mark::apply(input, observer, unit, Mark::Place::input) : input;
  observer->before_forward(unit, marked);
  torch::Tensor output = run_body(list, unit, entered, body, checkpointable);
  observer->after_forward(unit);
  if (at::GradMode::is_enabled() && output.requires_grad()) {
    output = Mark::apply(output, observer, unit, Mark::Place::output);
  }
  return output;
}

}  // namespace shardmark::model

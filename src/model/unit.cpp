#include "model/unit.hpp"

#include <algorithm>
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
    tell(*context);
    return {gradients[0], {}, {}, {}};
  }

  static void tell(AutogradContext& context) {
    auto* observer = reinterpret_cast<UnitObserver*>(static_cast<std::intptr_t>(context.saved_data["observer"].toInt()));
    const std::int64_t unit = context.saved_data["unit"].toInt();
    if (context.saved_data["output"].toBool()) {
      observer->before_backward(unit);
    } else {
      observer->after_input_gradient(unit);
    }
  }
};

/// The same for several tensors at once: its backward runs when the gradients of all of them are known.
struct MarkMany : torch::autograd::Function<MarkMany> {
  // Not a variable_list: autograd finds the tensors of a TensorList alone.
  static variable_list forward(AutogradContext* context, at::TensorList xs, UnitObserver* observer, std::int64_t unit,
                               Mark::Place place) {
    context->set_materialize_grads(false);
    context->saved_data["observer"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(observer));
    context->saved_data["unit"] = unit;
    context->saved_data["output"] = place == Mark::Place::output;
    return xs.vec();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    Mark::tell(*context);
    variable_list result = gradients;
    result.resize(gradients.size() + 3);  // nothing for observer, unit and place
    return result;
  }
};

thread_local bool is_running_again = false;

class RunningAgain {
 public:
  RunningAgain() : previous_(is_running_again) { is_running_again = true; }
  RunningAgain(const RunningAgain&) = delete;
  RunningAgain& operator=(const RunningAgain&) = delete;
  ~RunningAgain() { is_running_again = previous_; }

 private:
  bool previous_;
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
      const RunningAgain again;
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

std::vector<torch::Tensor> run_unit_of_many(const ParameterList& list, std::int64_t unit,
                                            const std::vector<torch::Tensor>& inputs, const UnitBodyOfMany& body) {
  SM_DCHECK(unit >= 0 && unit < static_cast<std::int64_t>(list.units().size()), "no such unit");
  UnitObserver* observer = list.observer();
  if (observer == nullptr) {
    return body(inputs);
  }
  const auto needs_gradient = [](const torch::Tensor& tensor) { return tensor.requires_grad(); };
  const bool marked = at::GradMode::is_enabled() && std::ranges::any_of(inputs, needs_gradient);
  const auto entered = marked ? MarkMany::apply(at::TensorList(inputs), observer, unit, Mark::Place::input) : inputs;
  observer->before_forward(unit, marked);
  std::vector<torch::Tensor> outputs = body(entered);
  observer->after_forward(unit);
  if (at::GradMode::is_enabled() && std::ranges::any_of(outputs, needs_gradient)) {
    outputs = MarkMany::apply(at::TensorList(outputs), observer, unit, Mark::Place::output);
  }
  return outputs;
}

bool runs_again() {
  return is_running_again;
}

}  // namespace shardmark::model

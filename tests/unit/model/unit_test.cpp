// Units: who is told what and when, in nested units, frozen ones, without gradients, after an exception; and that recomputed
// activations change no bit of any gradient.

#include "model/unit.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/layers.hpp"

namespace shardmark::model {
namespace {

using Events = std::vector<std::string>;

/// Writes down every call: F forward (with + if the input needs a gradient), D done, B backward, I input's gradient.
class Recorder final : public UnitObserver {
 public:
  void before_forward(std::int64_t unit, bool input_needs_gradient) override {
    events.push_back("F" + std::to_string(unit) + (input_needs_gradient ? "+" : ""));
  }
  void after_forward(std::int64_t unit) override { events.push_back("D" + std::to_string(unit)); }
  void before_backward(std::int64_t unit) override { events.push_back("B" + std::to_string(unit)); }
  void after_input_gradient(std::int64_t unit) override {
    events.push_back("I" + std::to_string(unit));
    if (on_input_gradient) {
      on_input_gradient(unit);
    }
  }
  Events take() { return std::exchange(events, {}); }

  Events events;
  std::function<void(std::int64_t)> on_input_gradient;
};

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kBlocks = 3;

/// A root with a layer before and one after three blocks, each with a layer, dropout and a path around them.
class Model {
 public:
  explicit Model(double dropout = 0.25) : first_(list, "first", kWidth, kWidth), last_(list, "last", kWidth, 2) {
    for (std::int64_t block = 1; block <= kBlocks; ++block) {
      const std::string name = "block" + std::to_string(block);
      list.begin_unit(name);
      layers_.emplace_back(list, name, kWidth, kWidth);
      scales_.push_back(&list.add(name + ".scale", {kWidth}, Init::normal(1, 0.1)));
      dropouts_.emplace_back(name + ".dropout", dropout);
    }
    calls.assign(kBlocks + 1, 0);
    for (auto& parameter : list.parameters()) {
      parameter.value = torch::empty(parameter.shape);
      fill_initial({parameter.value.data_ptr<float>(), static_cast<std::size_t>(parameter.numel())}, parameter.init, 3,
                   parameter.name, 0);
      parameter.value.set_requires_grad(true);
    }
  }

  void freeze(std::int64_t unit) {
    for (auto& parameter : list.parameters()) {
      if (parameter.unit == unit) {
        parameter.trainable = false;
        parameter.value.set_requires_grad(false);
      }
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return run_unit(list, 0, x, [this](const torch::Tensor& input) {
      torch::Tensor h = first_.forward(input);
      for (std::int64_t unit = 1; unit <= kBlocks; ++unit) {
        const auto i = static_cast<std::size_t>(unit - 1);
        const auto body = [this, unit, i](const torch::Tensor& entered) {
          ++calls[static_cast<std::size_t>(unit)];
          if (throws && unit == 2 && calls[2] == *throws) {
            throw std::runtime_error("block 2 failed");
          }
          return entered +
                 dropouts_[i].forward(at::tanh(layers_[i].forward(entered)) * scales_[i]->value, {.seed = 9, .step = 4});
        };
        h = run_unit(list, unit, h, body, /*checkpointable=*/true);
      }
      return last_.forward(h);
    });
  }

  static torch::Tensor input() {
    torch::Tensor x = torch::empty({kRows, kWidth});
    fill_initial({x.data_ptr<float>(), kRows * kWidth}, Init::normal(0, 1), 5, "input", 0);
    return x;
  }

  /// Gradients by parameter; undefined where there is none.
  std::vector<torch::Tensor> backward(const torch::Tensor& output) {
    output.square().sum().backward();
    std::vector<torch::Tensor> gradients;
    for (auto& parameter : list.parameters()) {
      gradients.push_back(parameter.value.grad().defined() ? parameter.value.grad().clone() : torch::Tensor());
      parameter.value.mutable_grad().reset();
    }
    return gradients;
  }

  ParameterList list;
  std::vector<int> calls;     // of each unit's body
  std::optional<int> throws;  // at which call of block 2

 private:
  Linear first_;
  Linear last_;
  std::vector<Linear> layers_;
  std::vector<Parameter*> scales_;
  std::vector<Dropout> dropouts_;
};

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  return a.sizes() == b.sizes() && std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

const Events kForward{"F0", "F1+", "D1", "F2+", "D2", "F3+", "D3", "D0"};
const Events kBackward{"B0", "B3", "I3", "B2", "I2", "B1", "I1"};

TEST(Unit, NestedUnitsAreToldInOrder) {
  for (const bool checkpointing : {false, true}) {
    Model model;
    Recorder recorder;
    model.list.set_observer(&recorder);
    model.list.set_checkpointing(checkpointing);
    for (int pass = 0; pass < 2; ++pass) {
      const auto output = model.forward(Model::input());
      EXPECT_EQ(recorder.take(), kForward) << "the root's input needs no gradient, the blocks' inputs do";
      static_cast<void>(model.backward(output));
      EXPECT_EQ(recorder.take(), kBackward) << "backward enters the root first; its input has no gradient";
    }
    const auto output = model.forward(Model::input().requires_grad_());
    EXPECT_EQ(recorder.take().front(), "F0+");
    static_cast<void>(model.backward(output));
    EXPECT_EQ(recorder.take().back(), "I0");
  }
}

/// Two outputs of two inputs; the second output is used by a later unit only.
TEST(Unit, ManyTensorsAreEnteredAndLeftOnce) {
  ParameterList list;
  Recorder recorder;
  list.set_observer(&recorder);
  const std::int64_t many = list.begin_unit("many");
  const std::int64_t behind = list.begin_unit("behind");
  const auto run = [&](bool with_gradient) {
    torch::Tensor a = torch::ones({2}).set_requires_grad(with_gradient);
    torch::Tensor b = torch::full({2}, 2.0).set_requires_grad(with_gradient);
    const auto outputs = run_unit_of_many(list, many, {a, b}, [](const std::vector<torch::Tensor>& in) {
      return std::vector{in[0] * in[1], in[0] + 3 * in[1]};
    });
    const torch::Tensor last = run_unit(list, behind, outputs[1], [](const torch::Tensor& in) { return in * 5; });
    if (with_gradient) {
      (outputs[0].sum() + last.sum()).backward();
      EXPECT_EQ(a.grad()[0].item<float>(), 2 + 5);
      EXPECT_EQ(b.grad()[0].item<float>(), 1 + 15);
    }
    return recorder.take();
  };
  EXPECT_EQ(run(true), (Events{"F1+", "D1", "F2+", "D2", "B2", "I2", "B1", "I1"}));
  EXPECT_EQ(run(false), (Events{"F1", "D1", "F2", "D2"}));
}

TEST(Unit, OnlyTheSecondRunOfABodyRunsAgain) {
  ParameterList list;
  list.set_checkpointing(true);
  const std::int64_t unit = list.begin_unit("unit");
  std::vector<bool> seen;
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  run_unit(
      list, unit, x,
      [&](const torch::Tensor& in) {
        seen.push_back(runs_again());
        return in * 2;
      },
      /*checkpointable=*/true)
      .sum()
      .backward();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(runs_again());
}

TEST(Unit, TheInputsGradientIsTheUnitsLast) {
  // Who frees a unit's values then must not take them from a gradient that is still to come.
  for (const bool checkpointing : {false, true}) {
    Model model;
    Recorder recorder;
    model.list.set_observer(&recorder);
    model.list.set_checkpointing(checkpointing);
    int checked = 0;
    recorder.on_input_gradient = [&](std::int64_t unit) {
      for (const auto& parameter : model.list.parameters()) {
        if (parameter.unit == unit) {
          EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
          ++checked;
        }
      }
    };
    static_cast<void>(model.backward(model.forward(Model::input())));
    EXPECT_EQ(checked, 9);
  }
}

TEST(Unit, FrozenUnitsAreVisitedOnlyBehindTheFirstThatTrains) {
  for (const bool checkpointing : {false, true}) {
    Model model;
    Recorder recorder;
    model.list.set_observer(&recorder);
    model.list.set_checkpointing(checkpointing);
    for (const std::int64_t unit : {0, 1, 3}) {
      model.freeze(unit);
    }
    const auto output = model.forward(Model::input());
    EXPECT_EQ(recorder.take(), (Events{"F0", "F1", "D1", "F2", "D2", "F3+", "D3", "D0"}));
    const auto gradients = model.backward(output);
    EXPECT_EQ(recorder.take(), (Events{"B0", "B3", "I3", "B2"})) << "nothing before block 2 has a gradient";
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_EQ(gradients[i].defined(), model.list.parameters()[i].trainable) << model.list.parameters()[i].name;
    }
    EXPECT_EQ(model.calls, (std::vector<int>{0, 1, checkpointing ? 2 : 1, checkpointing ? 2 : 1}))
        << "what needs no gradient does not run again";
  }
}

TEST(Unit, WithNothingToTrainThereIsNoBackward) {
  Model model;
  Recorder recorder;
  model.list.set_observer(&recorder);
  model.list.set_checkpointing(true);
  for (std::int64_t unit = 0; unit <= kBlocks; ++unit) {
    model.freeze(unit);
  }
  EXPECT_FALSE(model.forward(Model::input()).requires_grad());
  EXPECT_EQ(recorder.take(), (Events{"F0", "F1", "D1", "F2", "D2", "F3", "D3", "D0"}));
}

TEST(Unit, WithoutGradientsOnlyForwardIsTold) {
  for (const bool checkpointing : {false, true}) {
    Model model;
    Recorder recorder;
    model.list.set_observer(&recorder);
    model.list.set_checkpointing(checkpointing);
    const auto trained = model.forward(Model::input()).detach();
    recorder.take();
    const torch::NoGradGuard no_grad;
    const auto output = model.forward(Model::input());
    EXPECT_FALSE(output.requires_grad());
    EXPECT_TRUE(same_bits(output, trained));
    EXPECT_EQ(recorder.take(), (Events{"F0", "F1", "D1", "F2", "D2", "F3", "D3", "D0"}));
    EXPECT_EQ(model.calls, (std::vector<int>{0, 2, 2, 2})) << "nothing is run again";
  }
}

TEST(Unit, RecomputedActivationsChangeNoBit) {
  for (const bool observed : {false, true}) {
    for (const std::vector<std::int64_t>& frozen : std::vector<std::vector<std::int64_t>>{{}, {0}, {0, 1}, {2}, {1, 2, 3}}) {
      std::vector<torch::Tensor> outputs;
      std::vector<std::vector<torch::Tensor>> gradients;
      for (const bool checkpointing : {false, true}) {
        Model model;
        Recorder recorder;
        if (observed) {
          model.list.set_observer(&recorder);
        }
        model.list.set_checkpointing(checkpointing);
        for (const auto unit : frozen) {
          model.freeze(unit);
        }
        outputs.push_back(model.forward(Model::input()));
        gradients.push_back(model.backward(outputs.back()));
        EXPECT_EQ(model.calls.back(), checkpointing ? 2 : 1);
      }
      EXPECT_TRUE(same_bits(outputs[0].detach(), outputs[1].detach()));
      for (std::size_t i = 0; i < gradients[0].size(); ++i) {
        EXPECT_TRUE(same_bits(gradients[0][i], gradients[1][i])) << "parameter " << i;
        EXPECT_TRUE(!gradients[0][i].defined() || gradients[0][i].abs().sum().item<float>() > 0);
      }
    }
  }
}

TEST(Unit, DropoutIsInPlay) {
  // Or the test above would not see a mask that is drawn anew.
  Model with(0.25);
  Model without(0);
  EXPECT_FALSE(same_bits(with.forward(Model::input()).detach(), without.forward(Model::input()).detach()));
}

TEST(Unit, AnExceptionInTheBodyPassesAndTheNextPassIsWhole) {
  for (const bool checkpointing : {false, true}) {
    Model model;
    Recorder recorder;
    model.list.set_observer(&recorder);
    model.list.set_checkpointing(checkpointing);
    model.throws = 1;
    EXPECT_THROW(static_cast<void>(model.forward(Model::input())), std::runtime_error);
    EXPECT_EQ(recorder.take(), (Events{"F0", "F1+", "D1", "F2+"})) << "what failed is not done";
    EXPECT_TRUE(at::GradMode::is_enabled());
    const auto output = model.forward(Model::input());
    EXPECT_EQ(recorder.take(), kForward);
    static_cast<void>(model.backward(output));
    EXPECT_EQ(recorder.take(), kBackward);
  }
}

TEST(Unit, AnExceptionWhileRecomputingPassesThroughBackward) {
  Model model;
  Recorder recorder;
  model.list.set_observer(&recorder);
  model.list.set_checkpointing(true);
  model.throws = 2;
  const auto output = model.forward(Model::input());
  try {
    static_cast<void>(model.backward(output));
    FAIL() << "backward swallowed the exception";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("block 2 failed"), std::string::npos) << error.what();
  }
  recorder.take();
  for (auto& parameter : model.list.parameters()) {
    parameter.value.mutable_grad().reset();
  }
  static_cast<void>(model.backward(model.forward(Model::input())));
  auto events = kForward;
  events.insert(events.end(), kBackward.begin(), kBackward.end());
  EXPECT_EQ(recorder.take(), events);
}

/// A table looked up by whole numbers: an input that can have no gradient.
struct Lookup {
  ParameterList list;
  Parameter* table;
  int calls = 0;

  Lookup() {
    list.begin_unit("table");
    table = &list.add("table", {4, 3}, Init::normal(0, 1));
    table->value = torch::arange(12, at::kFloat).view({4, 3}).set_requires_grad(true);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    return run_unit(
        list, 1, ids,
        [this](const torch::Tensor& entered) {
          ++calls;
          return at::embedding(table->value, entered);
        },
        /*checkpointable=*/true);
  }
};

TEST(Unit, ARecomputedUnitWhoseInputNeedsNoGradientStillTrains) {
  for (const bool observed : {false, true}) {
    Lookup lookup;
    Recorder recorder;
    if (observed) {
      lookup.list.set_observer(&recorder);
    }
    lookup.list.set_checkpointing(true);
    const auto output = lookup.forward(torch::tensor({1, 3, 1}, at::kLong));
    EXPECT_TRUE(output.requires_grad());
    output.sum().backward();
    EXPECT_EQ(lookup.calls, 2);
    const auto expected = torch::tensor({{0.F, 0.F, 0.F}, {2.F, 2.F, 2.F}, {0.F, 0.F, 0.F}, {1.F, 1.F, 1.F}});
    EXPECT_TRUE(same_bits(lookup.table->value.grad(), expected));
    EXPECT_EQ(recorder.events, observed ? (Events{"F1", "D1", "B1"}) : Events{});
  }
}

TEST(Unit, ARecomputedFrozenUnitPassesItsInputsGradientOn) {
  Model model(0);
  model.list.set_checkpointing(true);
  for (std::int64_t unit = 0; unit <= kBlocks; ++unit) {
    model.freeze(unit);
  }
  const auto gradient_of_input = [&] {
    const auto x = Model::input().requires_grad_();
    model.forward(x).square().sum().backward();
    return x.grad();
  };
  const auto recomputed = gradient_of_input();
  EXPECT_EQ(model.calls, (std::vector<int>{0, 2, 2, 2}));
  model.list.set_checkpointing(false);
  EXPECT_TRUE(same_bits(recomputed, gradient_of_input()));
}

TEST(Unit, ABodyMayReturnItsInput) {
  for (const bool checkpointing : {false, true}) {
    ParameterList list;
    list.set_checkpointing(checkpointing);
    Recorder recorder;
    list.set_observer(&recorder);
    const auto x = torch::ones({3}).requires_grad_();
    run_unit(
        list, 0, x, [](const torch::Tensor& entered) { return entered; }, true)
        .sum()
        .backward();
    EXPECT_TRUE(same_bits(x.grad(), torch::ones({3})));
    EXPECT_EQ(recorder.take(), (Events{"F0+", "D0", "B0", "I0"}));
  }
}

}  // namespace
}  // namespace shardmark::model

// Events of units' passes: nested, around what another observer does, and closed where no input gradient comes.

#include "train/unit_trace.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace shardmark::train {
namespace {

using Lines = std::vector<std::string>;

/// Writes down every call.
class Listener final : public model::UnitObserver {
 public:
  void before_forward(std::int64_t unit, bool input_needs_gradient) override {
    calls.push_back(fmt::format("F{}{}", unit, input_needs_gradient ? "+" : ""));
  }
  void after_forward(std::int64_t unit) override { calls.push_back(fmt::format("D{}", unit)); }
  void before_backward(std::int64_t unit) override { calls.push_back(fmt::format("B{}", unit)); }
  void after_input_gradient(std::int64_t unit) override { calls.push_back(fmt::format("I{}", unit)); }
  Lines calls;
};

/// A root around two blocks y = w x.
class Model {
 public:
  Model() {
    list.add("first", {3}, model::Init::constant(2));
    for (const char* name : {"a", "b"}) {
      list.begin_unit(name);
      list.add(name, {3}, model::Init::constant(3));
    }
    for (auto& parameter : list.parameters()) {
      parameter.value = torch::full({3}, parameter.init.a).set_requires_grad(true);
    }
  }

  torch::Tensor loss(const torch::Tensor& input) {
    const auto value = [this](std::size_t i) { return list.parameters()[i].value; };
    return model::run_unit(list, 0, input,
                           [&](const torch::Tensor& in) {
                             torch::Tensor x = in * value(0);
                             for (std::int64_t unit = 1; unit <= 2; ++unit) {
                               x = model::run_unit(list, unit, x, [&](const torch::Tensor& entered) {
                                 return entered * value(static_cast<std::size_t>(unit));
                               });
                             }
                             return x;
                           })
        .sum();
  }

  model::ParameterList list;
};

/// Names of the events by start, indented by how many of those before enclose them.
Lines nested(const base::Trace& trace) {
  Lines lines;
  std::vector<double> ends;
  for (const auto& event : trace.sorted_events()) {
    EXPECT_FALSE(std::isnan(event.end_s)) << trace.text_of(event.name) << " never ended";
    EXPECT_EQ(event.kind, base::TraceKind::unit);
    while (!ends.empty() && ends.back() <= event.start_s) {
      ends.pop_back();
    }
    EXPECT_TRUE(ends.empty() || event.end_s <= ends.back()) << trace.text_of(event.name) << " reaches out";
    lines.push_back(fmt::format("{:{}}{}", "", ends.size(), trace.text_of(event.name)));
    ends.push_back(event.end_s);
  }
  return lines;
}

TEST(UnitTrace, PassesNest) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  Model model;
  UnitTrace units(trace, model.list);
  Lines expected;
  for (int pass = 0; pass < 2; ++pass) {
    model.loss(torch::ones({3})).backward();
    units.end_backward();
    for (const char* line : {"forward root", " forward a", " forward b", "backward root", " backward b", " backward a"}) {
      expected.emplace_back(line);
    }
  }
  EXPECT_EQ(nested(trace), expected);
}

TEST(UnitTrace, TheRootEndsWithItsInputGradientWhereOneComes) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  Model model;
  UnitTrace units(trace, model.list);
  model.loss(torch::ones({3}).set_requires_grad(true)).backward();
  for (const auto& event : trace.sorted_events()) {
    EXPECT_FALSE(std::isnan(event.end_s)) << trace.text_of(event.name);
  }
}

TEST(UnitTrace, AnInputGradientEndsWhatTheUnitEnclosesAndNothingElse) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  Model model;
  UnitTrace units(trace, model.list);
  units.before_backward(0);
  units.after_input_gradient(2);  // whose backward nobody asked for
  EXPECT_TRUE(std::isnan(trace.event(0).end_s));
  units.before_backward(1);
  units.after_input_gradient(0);  // the input of 1 needs none
  EXPECT_EQ(nested(trace), (Lines{"backward root", " backward a"}));
}

TEST(UnitTrace, WithoutGradientsThereIsNoBackward) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  Model model;
  UnitTrace units(trace, model.list);
  const torch::NoGradGuard no_grad;
  static_cast<void>(model.loss(torch::ones({3})));
  EXPECT_EQ(nested(trace), (Lines{"forward root", " forward a", " forward b"}));
}

TEST(UnitTrace, PassesEveryCallOnAndGivesTheListBack) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  Model plain;
  Listener alone;
  plain.list.set_observer(&alone);
  plain.loss(torch::ones({3})).backward();
  Model traced;
  Listener behind;
  traced.list.set_observer(&behind);
  {
    UnitTrace units(trace, traced.list);
    EXPECT_EQ(traced.list.observer(), &units);
    traced.loss(torch::ones({3})).backward();
    units.end_backward();
  }
  EXPECT_EQ(traced.list.observer(), &behind);
  EXPECT_EQ(behind.calls, alone.calls);
  EXPECT_EQ(behind.calls.size(), 11U) << "three units: forward, done, backward; two input gradients";
}

TEST(UnitTrace, ChangesNoBit) {
  base::Trace trace(100 * sizeof(base::TraceEvent));
  const auto gradient = [](Model& model) {
    model.loss(torch::full({3}, 0.1)).backward();
    return model.list.parameters()[0].value.grad();
  };
  Model plain;
  Model traced;
  UnitTrace units(trace, traced.list);
  const auto expected = gradient(plain);
  const auto found = gradient(traced);
  EXPECT_EQ(std::memcmp(expected.data_ptr(), found.data_ptr(), expected.nbytes()), 0);
}

}  // namespace
}  // namespace shardmark::train

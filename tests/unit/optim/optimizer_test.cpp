// Optimizers over flat ranges: against the textbook formulas in double, bit for bit however a range is cut at aligned borders,
// in bf16 through the fp32 scratch, with decay by segment, and with states that move to another layout.

#include "optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::optim {
namespace {

constexpr double kUnit = 0x1p-24;  // unit roundoff of fp32

OptimizerOptions options_of(const std::string& name, double weight_decay = 0, double momentum = 0) {
  OptimizerOptions options;
  options.name = name;
  options.weight_decay = weight_decay;
  options.momentum = momentum;
  return options;
}

std::vector<OptimizerOptions> all_optimizers(double weight_decay) {
  return {options_of("sgd", weight_decay), options_of("sgd", weight_decay, 0.9), options_of("adam", weight_decay),
          options_of("adamw", weight_decay)};
}

/// Parameters below 2 in magnitude.
at::Tensor parameters_of(std::int64_t count) {
  at::Tensor values = at::empty({count}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) {
    values.data_ptr<float>()[i] = 4 * base::RandomStream(1, "parameters").uniform(static_cast<std::uint64_t>(i)) - 2;
  }
  return values;
}

/// Magnitudes in [1/2, 1], any sign: no second moment is small, so errors of quotients stay in bounds.
at::Tensor gradients_of(std::int64_t count, int step) {
  const base::RandomStream stream(2, "gradients", static_cast<std::uint64_t>(step));
  at::Tensor values = at::empty({count}, at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = 0.5F + stream.uniform(static_cast<std::uint64_t>(2 * i)) / 2;
    values.data_ptr<float>()[i] = stream.bits(static_cast<std::uint64_t>(2 * i + 1)) % 2 == 0 ? magnitude : -magnitude;
  }
  return values;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

std::vector<Segment> whole(std::int64_t count) {
  return {{0, count, true}};
}

/// One element by the formulas of Sutskever's momentum as public frameworks have it, Adam and AdamW.
struct Formula {
  const OptimizerOptions& options;
  double value = 0;
  double first = 0;
  double second = 0;

  void step(int t, double gradient, double lr) {
    const auto& o = options;
    if (o.name == "adamw") {
      value -= lr * o.weight_decay * value;
    } else {
      gradient += o.weight_decay * value;
    }
    if (o.name == "sgd") {
      first = t == 1 ? gradient : o.momentum * first + gradient;
      value -= lr * first;
      return;
    }
    first = o.beta1 * first + (1 - o.beta1) * gradient;
    second = o.beta2 * second + (1 - o.beta2) * gradient * gradient;
    const double mean = first / (1 - std::pow(o.beta1, t));
    const double square = second / (1 - std::pow(o.beta2, t));
    value -= lr * mean / (std::sqrt(square) + o.eps);
  }
};

TEST(Optimizer, FollowsTheFormulas) {
  constexpr std::int64_t kCount = 83;  // vectors and a tail
  constexpr int kSteps = 5;
  constexpr double kLr = 0.01;
  constexpr float kCoefficient = 0.75F;  // exact in fp32
  for (const double weight_decay : {0.0, 0.1}) {
    for (const auto& options : all_optimizers(weight_decay)) {
      const auto optimizer = make_optimizer(options);
      at::Tensor parameters = parameters_of(kCount);
      at::Tensor gradients = at::zeros({kCount}, at::kFloat);
      std::vector<Formula> expected;
      for (std::int64_t i = 0; i < kCount; ++i) {
        expected.push_back({options, parameters[i].item<float>()});
      }
      optimizer->bind({{parameters, gradients, whole(kCount)}}, {});
      for (int t = 1; t <= kSteps; ++t) {
        const at::Tensor drawn = gradients_of(kCount, t);
        gradients.copy_(drawn);
        optimizer->begin_step();
        optimizer->update(0, kLr, kCoefficient);
        for (std::int64_t i = 0; i < kCount; ++i) {
          expected[static_cast<std::size_t>(i)].step(t, static_cast<double>(kCoefficient) * drawn[i].item<double>(), kLr);
        }
      }
      EXPECT_EQ(optimizer->steps(), kSteps);
      // Scaled gradients with decay lie in [0.175, 0.95]. A moment rounds by at most 3 units of its largest gradient a step, so
      // by 3/(1 - beta1) = 30 units in all; over a root of the second moment of at least 0.175: below 180 units; relative
      // errors of quotient, root and constants (10 and 1.5 a step, of an update below 6): below 105 units. Momentum: 5 steps of
      // 4 roundings of at most 5 gradients: below 100 units. So each step adds lr x 300 units, and 2 units of the parameter,
      // which is below 2.1.
      const double tolerance = kSteps * (kLr * 300 + 2 * 2.1) * kUnit;
      for (std::int64_t i = 0; i < kCount; ++i) {
        EXPECT_NEAR(parameters[i].item<double>(), expected[static_cast<std::size_t>(i)].value, tolerance)
            << options.name << ", decay " << weight_decay << ", momentum " << options.momentum;
      }
    }
  }
}

/// `count` elements updated as ranges cut at `cuts`; parameters and states put together again.
std::vector<at::Tensor> updated_in_pieces(const OptimizerOptions& options, std::int64_t count, std::vector<std::int64_t> cuts,
                                          at::ScalarType type) {
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(count);
  const at::Tensor all = parameters_of(count).to(type);
  const auto optimizer = make_optimizer(options);
  std::vector<Range> ranges;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t size = cuts[i + 1] - cuts[i];
    gradients.push_back(at::zeros({size}, type));
    // Memory of its own, as on another rank.
    ranges.push_back({all.narrow(0, cuts[i], size).clone(), gradients.back(), whole(size)});
  }
  optimizer->bind(ranges, {});
  for (int t = 1; t <= 3; ++t) {
    const at::Tensor drawn = gradients_of(count, t).to(type);
    optimizer->begin_step();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      gradients[i].copy_(drawn.narrow(0, cuts[i], cuts[i + 1] - cuts[i]));
      optimizer->update(i, 0.01, 0.3F);
    }
  }
  std::vector<at::Tensor> parts;
  for (const auto& range : ranges) {
    parts.push_back(range.parameters);
  }
  std::vector<at::Tensor> result{at::cat(parts)};
  for (std::size_t s = 0; s < optimizer->state_names().size(); ++s) {
    parts.clear();
    for (const auto& states : optimizer->states()) {
      parts.push_back(states[s]);
    }
    result.push_back(at::cat(parts));
  }
  return result;
}

TEST(Optimizer, AlignedPiecesGiveTheBitsOfTheWhole) {
  // More than two of the stretches in which bf16 is converted. A border is a multiple of 64 bytes of the narrowest type.
  constexpr std::int64_t kCount = 32 * 1100;
  for (auto options : all_optimizers(0.1)) {
    for (const auto state : {base::DType::fp32, base::DType::bf16}) {
      options.state = state;
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const std::int64_t a = state == base::DType::fp32 && type == at::kFloat ? 16 : 32;
        const auto expected = updated_in_pieces(options, kCount, {}, type);
        for (const std::vector<std::int64_t>& cuts : std::vector<std::vector<std::int64_t>>{
                 {a}, {a, 2 * a, 5 * a}, {kCount / 2}, {16 * 1024 + a, 32 * 1024}, {kCount - a}}) {
          const auto found = updated_in_pieces(options, kCount, cuts, type);
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t i = 0; i < found.size(); ++i) {
            EXPECT_TRUE(same_bits(found[i], expected[i])) << options.name << " cut at " << cuts.front() << ", tensor " << i;
          }
        }
      }
    }
  }
}

TEST(Optimizer, Bf16IsWidenedUpdatedInFp32AndRounded) {
  constexpr std::int64_t kCount = 32 * 1030;
  const auto round = [](at::Tensor& values, bool narrow) {
    if (narrow) {
      values.copy_(values.to(at::kBFloat16));
    }
  };
  for (auto options : all_optimizers(0.1)) {
    for (int which = 1; which < 8; ++which) {  // bits: parameters, gradients, states in bf16
      const bool narrow_parameters = (which & 1) != 0;
      const bool narrow_gradients = (which & 2) != 0;
      const bool narrow_states = (which & 4) != 0;
      options.state = base::DType::fp32;
      const auto wide = make_optimizer(options);
      options.state = narrow_states ? base::DType::bf16 : base::DType::fp32;
      const auto tested = make_optimizer(options);
      at::Tensor expected = parameters_of(kCount);
      round(expected, narrow_parameters);
      at::Tensor expected_gradients = at::zeros({kCount}, at::kFloat);
      at::Tensor found = expected.to(narrow_parameters ? at::kBFloat16 : at::kFloat, false, /*copy=*/true);
      at::Tensor found_gradients = at::zeros({kCount}, narrow_gradients ? at::kBFloat16 : at::kFloat);
      wide->bind({{expected, expected_gradients, whole(kCount)}}, {});
      tested->bind({{found, found_gradients, whole(kCount)}}, {});
      for (int t = 1; t <= 3; ++t) {
        expected_gradients.copy_(gradients_of(kCount, t));
        round(expected_gradients, narrow_gradients);
        found_gradients.copy_(expected_gradients);
        for (const auto& optimizer : {wide.get(), tested.get()}) {
          optimizer->begin_step();
          optimizer->update(0, 0.01, 0.3F);  // 0.3 g is not rounded to bf16 on its way
        }
        round(expected, narrow_parameters);
        for (auto state : wide->states()[0]) {
          round(state, narrow_states);
        }
        EXPECT_TRUE(same_bits(found.to(at::kFloat), expected)) << options.name << ", case " << which << ", step " << t;
        for (std::size_t s = 0; s < tested->state_names().size(); ++s) {
          EXPECT_TRUE(same_bits(tested->states()[0][s].to(at::kFloat), wide->states()[0][s]));
          EXPECT_EQ(tested->states()[0][s].scalar_type(), narrow_states ? at::kBFloat16 : at::kFloat);
        }
      }
    }
  }
}

TEST(Optimizer, DecayFallsOnItsSegmentsOnly) {
  constexpr std::int64_t kCount = 64;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto& options : all_optimizers(0.5)) {
      const auto run = [&](const OptimizerOptions& with, std::vector<Segment> segments) {
        at::Tensor parameters = parameters_of(kCount).to(type);
        at::Tensor gradients = gradients_of(kCount, 1).to(type);
        const auto optimizer = make_optimizer(with);
        optimizer->bind({{parameters, gradients, std::move(segments)}}, {});
        optimizer->begin_step();
        optimizer->update(0, 0.1, 1);
        return parameters;
      };
      auto plain = options;
      plain.weight_decay = 0;
      const auto decayed = run(options, whole(kCount));
      const auto kept = run(plain, whole(kCount));
      EXPECT_FALSE(same_bits(decayed, kept));
      const auto mixed = run(options, {{0, 32, true}, {32, 48, false}, {48, 64, true}});
      EXPECT_TRUE(same_bits(mixed.narrow(0, 0, 32), decayed.narrow(0, 0, 32)));
      EXPECT_TRUE(same_bits(mixed.narrow(0, 32, 16), kept.narrow(0, 32, 16)));
      EXPECT_TRUE(same_bits(mixed.narrow(0, 48, 16), decayed.narrow(0, 48, 16)));
      const auto partly = run(options, {{16, 32, true}});
      EXPECT_TRUE(same_bits(partly.narrow(0, 0, 16), parameters_of(kCount).to(type).narrow(0, 0, 16)))
          << "what no segment covers is not updated";
    }
  }
}

TEST(Optimizer, TheCoefficientScalesGradientsInFp32) {
  constexpr std::int64_t kCount = 48;
  for (const auto& options : all_optimizers(0.1)) {
    const auto run = [&](const at::Tensor& gradients, float coefficient) {
      at::Tensor parameters = parameters_of(kCount);
      const auto optimizer = make_optimizer(options);
      optimizer->bind({{parameters, gradients, whole(kCount)}}, {});
      optimizer->begin_step();
      optimizer->update(0, 0.1, coefficient);
      return parameters;
    };
    EXPECT_TRUE(same_bits(run(gradients_of(kCount, 1), 0.3F), run(gradients_of(kCount, 1) * 0.3F, 1)));
    const auto kept = gradients_of(kCount, 1);
    static_cast<void>(run(kept, 1));
    EXPECT_TRUE(same_bits(kept, gradients_of(kCount, 1))) << "1 is not at all";
  }
}

TEST(Optimizer, StatesMoveToAnotherLayout) {
  constexpr std::int64_t kHalf = 32;
  for (const auto& options : all_optimizers(0.1)) {
    const auto run = [&](bool moves) {
      // First one range, then, if it moves, two in reverse order.
      at::Tensor parameters = parameters_of(2 * kHalf);
      at::Tensor gradients = at::zeros({2 * kHalf}, at::kFloat);
      const auto optimizer = make_optimizer(options);
      optimizer->bind({{parameters, gradients, whole(2 * kHalf)}}, {});
      for (int t = 1; t <= 4; ++t) {
        gradients.copy_(gradients_of(2 * kHalf, t));
        optimizer->begin_step();
        if (!moves || t < 3) {
          optimizer->update(0, 0.01, 1);
          continue;
        }
        const auto low = [&](const at::Tensor& flat) { return flat.narrow(0, 0, kHalf); };
        const auto high = [&](const at::Tensor& flat) { return flat.narrow(0, kHalf, kHalf); };
        if (t == 3) {
          std::vector<std::vector<at::Tensor>> moved(2);
          for (const auto& state : optimizer->states()[0]) {
            moved[0].push_back(high(state).clone());
            moved[1].push_back(low(state).clone());
          }
          optimizer->bind({{high(parameters), high(gradients), whole(kHalf)}, {low(parameters), low(gradients), whole(kHalf)}},
                          std::move(moved));
        }
        optimizer->update(0, 0.01, 1);
        optimizer->update(1, 0.01, 1);
      }
      EXPECT_EQ(optimizer->steps(), 4) << "binding again keeps the count";
      return parameters;
    };
    EXPECT_TRUE(same_bits(run(true), run(false))) << options.name << ", momentum " << options.momentum;
  }
}

TEST(Optimizer, StatesByName) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(make_optimizer(options_of("sgd"))->state_names(), Names{});
  EXPECT_EQ(make_optimizer(options_of("sgd", 0, 0.9))->state_names(), Names{"momentum_buffer"});
  EXPECT_EQ(make_optimizer(options_of("adam"))->state_names(), (Names{"exp_avg", "exp_avg_sq"}));
  const RangeLayout range{100, whole(100)};
  EXPECT_EQ(make_optimizer(options_of("sgd"))->state_bytes(range), 0);
  EXPECT_EQ(make_optimizer(options_of("sgd", 0, 0.9))->state_bytes(range), 400);
  auto narrow = options_of("adamw");
  EXPECT_EQ(make_optimizer(narrow)->state_bytes(range), 800);
  narrow.state = base::DType::bf16;
  EXPECT_EQ(make_optimizer(narrow)->state_bytes(range), 400);
}

TEST(Optimizer, EmptyRangesAndNoRanges) {
  for (const auto& options : all_optimizers(0.1)) {
    const auto optimizer = make_optimizer(options);
    optimizer->bind({}, {});
    optimizer->begin_step();
    optimizer->bind({{at::empty({0}, at::kFloat), at::empty({0}, at::kFloat), {}}}, {});
    optimizer->begin_step();
    optimizer->update(0, 0.1, 0.5F);
    EXPECT_EQ(optimizer->steps(), 2);
  }
}

TEST(Optimizer, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(static_cast<void>(make_optimizer(options_of("lion"))), base::ConfigError);
  const auto adam = make_optimizer(options_of("adam"));
  const at::Tensor ten = at::zeros({10}, at::kFloat);
  EXPECT_THROW(adam->bind({{ten, at::zeros({9}, at::kFloat), whole(9)}}, {}), base::InvariantError);
  EXPECT_THROW(adam->bind({{ten, at::zeros({10}, at::kFloat), whole(10)}}, {{ten}}), base::InvariantError)
      << "one state of two";
  EXPECT_THROW(adam->bind({{ten, at::zeros({10}, at::kFloat), whole(10)}}, {{ten, ten}, {ten, ten}}), base::InvariantError);
}

}  // namespace
}  // namespace shardmark::optim

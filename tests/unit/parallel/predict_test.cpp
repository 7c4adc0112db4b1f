// Predicted payload and persistent bytes against the formulas of the techniques, written here once more in their own letters:
// P all parameters, T trainable, F frozen, B of the units that backward visits, Pp, Bp, Tp persistent, m micro-steps, a
// reductions, N ranks, g of a copy, k parts kept; all padded element counts.

#include "parallel/predict.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/strategy.hpp"

namespace shardmark::parallel {
namespace {

using base::DType;
using device::MemoryCategory;
using Facts = std::vector<ParameterFacts>;

/// Models: all trainable; frozen units in front, between and behind; LoRA-like units of both kinds; all frozen; nothing.
const std::vector<Facts>& models() {
  static const std::vector<Facts> all{
      {{13, 0, true}, {1009, 1, true}, {7, 1, true}, {523, 2, true}, {3, 2, true}},
      {{131, 0, false}, {1009, 1, false}, {523, 2, true}, {5, 2, true}, {211, 3, false}, {2, 4, true}},
      {{131, 0, false}, {1009, 1, false}, {31, 1, true}, {29, 1, true}, {997, 2, false}, {31, 2, true}, {1, 3, false}},
      {{131, 0, true}, {1009, 1, false}, {997, 2, false}},
      {{131, 0, false}, {1009, 1, false}},
      {{0, 0, true}, {0, 1, false}, {5, 2, true}},
      {},
  };
  return all;
}

std::vector<Precision> precisions() {
  std::vector<Precision> all(7);
  all[1].compute = DType::bf16;
  all[2].reduce = DType::bf16;
  all[3].compute = all[3].reduce = all[3].frozen = DType::bf16;
  all[4].frozen = DType::bf16;
  all[5].parameters = all[5].compute = all[5].reduce = all[5].state = all[5].frozen = DType::bf16;
  all[6].compute = DType::bf16;
  all[6].state = DType::bf16;
  return all;
}

double bytes(DType type) {
  return type == DType::bf16 ? 2 : 4;
}

/// Elements of one kind, frozen and trainable apart: their bytes differ.
struct Kind {
  double trainable = 0;
  double frozen = 0;
};

struct Letters {
  Kind P, B, Pp, Bp;
  double T = 0;
  double root_B_trainable = 0, root_B_frozen = 0;
};

Letters letters_of(const std::vector<GroupPlan>& groups, const Facts& facts) {
  // Backward goes back to the first unit that trains; what lies before is not visited. The root encloses all.
  std::int64_t first = -1;
  for (const auto& fact : facts) {
    if (fact.trainable && (first < 0 || fact.unit < first)) {
      first = fact.unit;
    }
  }
  const auto visited = [&](std::int64_t unit) { return first >= 0 && (unit == 0 || unit >= first); };
  Letters letters;
  for (const auto& group : groups) {
    const auto numel = static_cast<double>(group.layout.numel());
    const auto add = [&](Kind& kind) { (group.trainable ? kind.trainable : kind.frozen) += numel; };
    add(letters.P);
    letters.T += group.trainable ? numel : 0;
    if (!group.gathered) {
      add(letters.Pp);
    } else if (visited(group.unit)) {
      add(letters.B);
      if (group.unit == 0) {
        (group.trainable ? letters.root_B_trainable : letters.root_B_frozen) += numel;
      }
    }
  }
  return letters;
}

struct Setting {
  std::int64_t ranks;
  std::int64_t micro_steps;
  bool no_sync;
  bool ordered;
  Precision precision;
};

/// Calls `body` for every model and setting.
void for_all(const std::function<void(const Facts&, const Setting&)>& body) {
  for (std::size_t model = 0; model < models().size(); ++model) {
    for (const auto& precision : precisions()) {
      for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
        for (const std::int64_t micro_steps : {1, 3}) {
          for (const bool no_sync : {false, true}) {
            for (const bool ordered : {false, true}) {
              SCOPED_TRACE("model " + std::to_string(model) + ", ranks " + std::to_string(ranks) + ", micro-steps " +
                           std::to_string(micro_steps) + (no_sync ? ", no_sync" : "") + (ordered ? ", ordered" : "") +
                           ", alignment " + std::to_string(precision.alignment()));
              body(models()[model], {ranks, micro_steps, no_sync, ordered, precision});
            }
          }
        }
      }
    }
  }
}

StepShape shape_of(const Setting& setting, const optim::Optimizer* optimizer = nullptr) {
  return {setting.micro_steps, setting.no_sync, setting.ordered, setting.ranks, optimizer};
}

StrategyOptions options_of(const Setting& setting) {
  StrategyOptions options;
  options.precision = setting.precision;
  options.micro_steps = setting.micro_steps;
  options.no_sync = setting.no_sync;
  return options;
}

/// Both sides add at most 40 products of at most 6 factors in double: each rounds by at most 2^-53 of the sum.
constexpr double kRounding = 240 * 0x1p-53;

void expect_payload(const Facts& facts, const Setting& setting, const Policy& policy,
                    const std::function<double(const Letters&)>& formula) {
  const auto groups = plan_groups(facts, policy, setting.precision.alignment());
  const double expected = formula(letters_of(groups, facts));
  const double predicted = predicted_payload(groups, visited_by_backward(facts), policy, setting.precision, shape_of(setting));
  EXPECT_NEAR(predicted, expected, kRounding * expected);
}

double fraction(double n) {
  return (n - 1) / n;
}

/// Gathered elements in the bytes in which they travel.
double gathered(const Setting& setting, const Kind& kind) {
  return kind.trainable * bytes(setting.precision.compute) + kind.frozen * bytes(setting.precision.frozen);
}

Kind minus(const Kind& a, const Kind& b) {
  return {a.trainable - b.trainable, a.frozen - b.frozen};
}

TEST(Payload, Replicated) {
  for_all([](const Facts& facts, const Setting& s) {
    const double a = s.no_sync ? 1 : static_cast<double>(s.micro_steps);
    const double f = fraction(static_cast<double>(s.ranks));
    const double r = bytes(s.precision.reduce);
    const double w = bytes(s.precision.compute);
    expect_payload(facts, s, ddp_policy(options_of(s), s.ranks), [&](const Letters& l) { return 2 * a * l.T * f * r; });
    for (const MakePolicy make : {zero1_policy, zero2_policy}) {
      expect_payload(facts, s, make(options_of(s), s.ranks), [&](const Letters& l) { return (a * l.T * r + l.T * w) * f; });
    }
  });
}

TEST(Payload, Sharded) {
  for_all([](const Facts& facts, const Setting& s) {
    const auto m = static_cast<double>(s.micro_steps);
    const double a = s.no_sync ? 1 : m;
    const double f = fraction(static_cast<double>(s.ranks));
    const double r = bytes(s.precision.reduce);
    for (const MakePolicy make : {zero3_policy, fsdp_policy}) {
      expect_payload(facts, s, make(options_of(s), s.ranks),
                     [&](const Letters& l) { return (m * gathered(s, l.P) + m * gathered(s, l.B) + a * l.T * r) * f; });
    }
    StrategyOptions options = options_of(s);
    options.persistence_threshold = 200;
    expect_payload(facts, s, zero3_policy(options, s.ranks), [&](const Letters& l) {
      return (m * gathered(s, minus(l.P, l.Pp)) + m * gathered(s, l.B) + l.Pp.trainable * bytes(s.precision.compute) +
              a * l.T * r) *
             f;
    });
    options = options_of(s);
    options.after_forward = AfterForward::keep;
    expect_payload(facts, s, fsdp_policy(options, s.ranks),
                   [&](const Letters& l) { return (m * gathered(s, l.P) + a * l.T * r) * f; });
    options = options_of(s);
    options.profile = "deepspeed";  // these models are small: backward comes to every unit within its distance
    options.persistence_threshold = 0;
    const Policy policy = zero3_policy(options, s.ranks);
    const std::vector<std::int64_t> no_bytes(visited_by_backward(facts).size(), 0);
    expect_payload(facts, s, keep_for_reuse(policy, facts, no_bytes),
                   [&](const Letters& l) { return (m * gathered(s, l.P) + a * l.T * r) * f; });
    options = options_of(s);
    options.after_forward = AfterForward::keep_part;
    for (std::int64_t k = 2; k < s.ranks; ++k) {
      if (s.ranks % k == 0) {
        options.parts = k;
        expect_payload(facts, s, fsdp_policy(options, s.ranks), [&](const Letters& l) {
          return (m * gathered(s, l.P) + a * l.T * r) * f + m * gathered(s, l.B) * fraction(static_cast<double>(k));
        });
      }
    }
  });
}

TEST(Payload, Hybrid) {
  for_all([](const Facts& facts, const Setting& s) {
    const auto m = static_cast<double>(s.micro_steps);
    const double a = s.no_sync ? 1 : m;
    const double r = bytes(s.precision.reduce);
    for (std::int64_t share = 1; share <= s.ranks; ++share) {
      if (s.ranks % share != 0) {
        continue;
      }
      const auto g = static_cast<double>(share);
      const double R = static_cast<double>(s.ranks) / g;
      StrategyOptions options = options_of(s);
      options.shard_group = share;
      expect_payload(facts, s, fsdp_policy(options, s.ranks), [&](const Letters& l) {
        return (m * gathered(s, l.P) + m * gathered(s, l.B) + a * l.T * r) * fraction(g) +
               2 * a * (l.T / g) * fraction(R) * (s.ordered ? 4 : r);
      });
    }
  });
}

TEST(Payload, TheRootThatFsdp2KeepsIsGatheredOnce) {
  for_all([](const Facts& facts, const Setting& s) {
    const auto m = static_cast<double>(s.micro_steps);
    const double a = s.no_sync ? 1 : m;
    StrategyOptions options = options_of(s);
    options.profile = "fsdp2";
    expect_payload(facts, s, fsdp_policy(options, s.ranks), [&](const Letters& l) {
      const Kind others = minus(l.B, {l.root_B_trainable, l.root_B_frozen});
      return (m * gathered(s, l.P) + m * gathered(s, others) + a * l.T * bytes(s.precision.reduce)) *
             fraction(static_cast<double>(s.ranks));
    });
  });
}

TEST(Payload, KnownNumbers) {
  // 100 and 20 elements at 2 ranks: units of 128 and 32 (multiples of 16 x 2). f = 1/2, m = 3, sync, all fp32.
  const Facts facts{{100, 1, true}, {20, 2, false}};
  const Setting setting{2, 3, false, false, {}};
  expect_payload(facts, setting, zero3_policy(options_of(setting), 2),
                 [](const Letters&) { return (3 * 160 + 3 * 160 + 3 * 128) * 0.5 * 4; });
  expect_payload(facts, setting, zero2_policy(options_of(setting), 2),
                 [](const Letters&) { return (3 * 128 + 128) * 0.5 * 4; });
}

using Categories = std::array<double, 3>;  // parameters, gradients, states

/// `formula` sees the letters and the bytes q, w, p, grad, s of an element: frozen as stored, compute, master (0 = none),
/// gradient at rest, all states.
void expect_persistent(
    const Facts& facts, const Setting& setting, const Policy& policy,
    const std::function<Categories(const Letters&, double q, double w, double p, double grad, double s)>& formula) {
  const auto groups = plan_groups(facts, policy, setting.precision.alignment());
  const auto& precision = setting.precision;
  const double p = precision.parameters == precision.compute ? 0 : bytes(precision.parameters);
  const double grad = setting.micro_steps > 1 ? 4 : bytes(precision.reduce);
  const double s = 2 * bytes(precision.state);
  const Categories expected = formula(letters_of(groups, facts), bytes(precision.frozen), bytes(precision.compute), p, grad, s);
  optim::OptimizerOptions adam{.name = "adamw"};
  adam.state = precision.state;
  const auto optimizer = optim::make_optimizer(adam);
  const auto predicted = predicted_persistent(groups, policy, precision, shape_of(setting, optimizer.get()));
  EXPECT_EQ(static_cast<double>(predicted[static_cast<std::size_t>(MemoryCategory::parameters)]), expected[0]);
  EXPECT_EQ(static_cast<double>(predicted[static_cast<std::size_t>(MemoryCategory::gradients)]), expected[1]);
  EXPECT_EQ(static_cast<double>(predicted[static_cast<std::size_t>(MemoryCategory::optimizer_state)]), expected[2]);
  // Nothing else persists.
  const auto total = std::accumulate(predicted.begin(), predicted.end(), std::int64_t{0});
  EXPECT_EQ(static_cast<double>(total), expected[0] + expected[1] + expected[2]);
}

TEST(Persistent, Replicated) {
  for_all([](const Facts& facts, const Setting& setting) {
    const auto n = static_cast<double>(setting.ranks);
    const auto options = options_of(setting);
    expect_persistent(facts, setting, ddp_policy(options, setting.ranks),
                      [](const Letters& l, double q, double w, double p, double grad, double s) {
                        return Categories{l.P.frozen * q + l.T * std::max(p, w), l.T * grad, l.T * s};
                      });
    expect_persistent(facts, setting, zero1_policy(options, setting.ranks),
                      [&](const Letters& l, double q, double w, double p, double grad, double s) {
                        return Categories{l.P.frozen * q + l.T * w + l.T * p / n, l.T * grad, l.T * s / n};
                      });
    expect_persistent(facts, setting, zero2_policy(options, setting.ranks),
                      [&](const Letters& l, double q, double w, double p, double grad, double s) {
                        const double whole_sums = setting.no_sync && setting.micro_steps > 1 ? 4 * l.T : 0;
                        return Categories{l.P.frozen * q + l.T * w + l.T * p / n, l.T * grad / n + whole_sums, l.T * s / n};
                      });
  });
}

TEST(Persistent, Sharded) {
  for_all([](const Facts& facts, const Setting& setting) {
    for (std::int64_t share = 1; share <= setting.ranks; ++share) {
      if (setting.ranks % share != 0) {
        continue;
      }
      for (const std::int64_t threshold : {0, 200, 1 << 20}) {
        auto options = options_of(setting);
        options.shard_group = share;
        options.persistence_threshold = threshold;
        const auto d = static_cast<double>(share);
        expect_persistent(facts, setting, fsdp_policy(options, setting.ranks),
                          [&](const Letters& l, double q, double w, double p, double grad, double s) {
                            const double whole_sums = setting.no_sync && setting.micro_steps > 1 ? 4 * l.T : 0;
                            const double parts = (l.P.frozen * q + l.T * std::max(p, w)) / d;
                            // A persistent tensor adds w (frozen: q) an element, less the 1/D already held when p = 0 or
                            // frozen.
                            const double whole = l.Pp.trainable * w - (p == 0 ? l.Pp.trainable * w / d : 0) + l.Pp.frozen * q -
                                                 l.Pp.frozen * q / d;
                            return Categories{parts + whole, l.T * grad / d + whole_sums, l.T * s / d};
                          });
      }
    }
  });
}

}  // namespace
}  // namespace shardmark::parallel

#include "model/llama.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "model/unit.hpp"
#include "weights/safetensors.hpp"

namespace shardmark::model {
namespace {

using ::testing::ElementsAre;

const std::string kFixture = SM_TEST_SOURCE_DIR "/tests/fixtures/tiny-llama/";

const LlamaConfig kTinyLlama{.vocab_size = 512,
                             .hidden_size = 64,
                             .intermediate_size = 160,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 8,
                             .num_key_value_heads = 2,
                             .head_dim = 16,
                             .rms_norm_eps = 1e-5,
                             .tie_word_embeddings = true};

torch::Tensor read(const weights::SafetensorsFile& file, const std::string& name) {
  const auto& info = file.at(name);
  const std::map<weights::ElementType, at::ScalarType> types{{weights::ElementType::f32, at::kFloat},
                                                             {weights::ElementType::f64, at::kDouble},
                                                             {weights::ElementType::i64, at::kLong}};
  torch::Tensor tensor = at::empty(info.shape, at::TensorOptions(types.at(info.type)));
  file.read_into(name, {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(info.num_bytes)});
  return tensor;
}

/// A model with values, as a strategy would bind them: those of the fixture, or first values of seed 3.
struct Model {
  explicit Model(const LlamaConfig& config, torch::Tensor frequencies) : llama(list, config, std::move(frequencies)) {
    for (auto& parameter : list.parameters()) {
      parameter.value = at::empty(parameter.shape, at::kFloat);
      fill_initial({parameter.value.data_ptr<float>(), static_cast<std::size_t>(parameter.numel())}, parameter.init, 3,
                   parameter.name, 0);
      parameter.value.requires_grad_();
    }
  }

  /// The loss after one backward pass that leaves gradients of loss / targets.
  double train(const TokenBatch& batch, double targets) {
    for (auto& parameter : list.parameters()) {
      parameter.value.mutable_grad() = torch::Tensor();
    }
    const torch::Tensor loss = llama.loss_sum(batch);
    torch::autograd::backward({loss}, {at::full({}, 1 / targets)});
    return loss.item<double>() / targets;
  }

  ParameterList list;
  Llama llama;
};

class TinyLlama : public ::testing::Test {
 protected:
  TinyLlama() {
    const weights::SafetensorsFile weights(kFixture + "model.safetensors");
    for (auto& parameter : model.list.parameters()) {
      parameter.value = read(weights, parameter.name).requires_grad_();
    }
    num_stored = weights.tensors().size();
  }

  weights::SafetensorsFile reference{kFixture + "reference.safetensors"};
  Model model{kTinyLlama, llama3_frequencies(rotary_frequencies(5e5, kTinyLlama.head_dim),
                                             {.factor = 32, .low_turns = 1, .high_turns = 4, .original_length = 64})};
  TokenBatch batch{read(reference, "input_ids"), read(reference, "labels"), {}};
  double targets = 284;  // num_target_tokens of reference.json
  std::size_t num_stored = 0;
};

double relative_l2(const torch::Tensor& found, const torch::Tensor& wanted) {
  const torch::Tensor exact = wanted.to(at::kDouble);
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

/// Bits, not values: at::equal calls 0 and -0 equal.
bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Tolerances of the fixture's reference.json: 20 x the worst difference between equally right runs of the public
// implementation (one row at a time, float64, fused attention).
TEST_F(TinyLlama, LogitsLossAndGradientsAreThoseOfThePublicImplementation) {
  EXPECT_EQ(model.list.numel(), 135'488);
  EXPECT_EQ(model.list.parameters().size(), num_stored);
  {
    const torch::NoGradGuard no_grad;
    const torch::Tensor logits = model.llama.logits(batch).slice(0, 0, 1);
    EXPECT_LE((logits - read(reference, "logits").slice(0, 0, 1)).abs().max().item<double>(), 2e-4);
  }
  const double loss = model.train(batch, targets);
  EXPECT_NEAR(loss / read(reference, "loss").item<double>(), 1, 2e-6);
  for (const auto& parameter : model.list.parameters()) {
    EXPECT_LE(relative_l2(parameter.value.grad(), read(reference, "grad." + parameter.name)), 3e-5) << parameter.name;
  }
}

/// Golden numbers of the public implementation; its fp32 arithmetic is arranged in another order, so some last bits differ.
TEST(Llama3Frequencies, AreThoseOfThePublicImplementation) {
  const weights::SafetensorsFile golden(SM_TEST_SOURCE_DIR "/tests/fixtures/units/rope.safetensors");
  struct Case {
    const char* name;
    std::int64_t head_width;
    std::int64_t original_length;
  };
  for (const auto& [name, head_width, original_length] :
       {Case{"llama-3.2-1b", 64, 8192}, Case{"llama-3.2-3b", 128, 8192}, Case{"tiny-llama", 16, 64}}) {
    const torch::Tensor found =
        llama3_frequencies(rotary_frequencies(5e5, head_width),
                           {.factor = 32, .low_turns = 1, .high_turns = 4, .original_length = original_length});
    const torch::Tensor wanted = read(golden, std::string(name) + ".inv_freq");
    // Each is at most six roundings from the exact value: the quotients, the difference, the two products and their sum.
    const double bound = 2 * 6 * 0x1p-24;
    EXPECT_LE(((found - wanted).abs() / wanted).max().item<double>(), bound) << name;
  }
}

TEST_F(TinyLlama, RecomputationGivesTheSameBits) {
  const double kept_loss = model.train(batch, targets);
  std::vector<torch::Tensor> kept;
  for (const auto& parameter : model.list.parameters()) {
    kept.push_back(parameter.value.grad().clone());
  }
  model.list.set_checkpointing(true);
  EXPECT_EQ(model.train(batch, targets), kept_loss);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto& parameter = model.list.parameters()[i];
    EXPECT_TRUE(same_bits(parameter.value.grad(), kept[i])) << parameter.name;
  }
}

TEST_F(TinyLlama, ALaterTokenChangesNothingBeforeIt) {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kChanged = 50;
  const torch::Tensor before = model.llama.logits(batch);
  torch::Tensor other = batch.input_ids_NT.clone();
  other.select(1, kChanged).copy_((other.select(1, kChanged) + 1).remainder(512));
  const torch::Tensor after = model.llama.logits({other, {}, {}});
  EXPECT_TRUE(same_bits(after.slice(1, 0, kChanged).contiguous(), before.slice(1, 0, kChanged).contiguous()));
  for (std::int64_t column = kChanged; column < 80; ++column) {
    EXPECT_FALSE(at::equal(after.select(1, column), before.select(1, column))) << column;
  }
}

TEST_F(TinyLlama, PackedTextsDoNotSeeEachOther) {
  // Columns 0 to 29 of rows 0 and 8, which hold no padding there, as two texts of one row; four paddings end it.
  const auto cut = [](const torch::Tensor& all, std::int64_t row) { return all.slice(0, row, row + 1).slice(1, 0, 30); };
  const auto pack = [&](const torch::Tensor& all, std::int64_t filler) {
    return at::cat({cut(all, 0), cut(all, 8), at::full({1, 4}, filler, at::kLong)}, 1);
  };
  torch::Tensor labels = batch.input_ids_NT.clone();
  labels.select(1, 0).fill_(-100);
  const TokenBatch apart{
      at::cat({cut(batch.input_ids_NT, 0), cut(batch.input_ids_NT, 8)}), at::cat({cut(labels, 0), cut(labels, 8)}), {}};
  const auto segment = [](std::int64_t number, std::int64_t length) { return at::full({1, length}, number, at::kLong); };
  const TokenBatch packed{pack(batch.input_ids_NT, 0), pack(labels, -100),
                          at::cat({segment(1, 30), segment(2, 30), segment(0, 4)}, 1)};

  const double apart_loss = model.train(apart, 58);
  std::vector<torch::Tensor> wanted;
  for (const auto& parameter : model.list.parameters()) {
    wanted.push_back(parameter.value.grad().clone());
  }
  // Same sums in another order: the bounds of equally right runs, 2e-6 for a loss and 2e-5 for a gradient tensor.
  EXPECT_NEAR(model.train(packed, 58) / apart_loss, 1, 2e-6);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& parameter = model.list.parameters()[i];
    EXPECT_LE(relative_l2(parameter.value.grad(), wanted[i]), 2e-5) << parameter.name;
  }
}

TEST_F(TinyLlama, ManyRowsWithoutAGraphLoseNothing) {
  const torch::NoGradGuard no_grad;
  // 504 rows of 160 KiB of logits are more than one piece of 64 MiB. The same sum in another order, as above.
  const TokenBatch many{batch.input_ids_NT.repeat({42, 1}), batch.labels_NT.repeat({42, 1}), {}};
  const double once = model.llama.loss_sum(batch).item<double>();
  EXPECT_NEAR(model.llama.loss_sum(many).item<double>() / (42 * once), 1, 2e-6);
}

TEST_F(TinyLlama, BrainFloatsComputeInTheirOwnTypeAndTheLossInFp32) {
  for (auto& parameter : model.list.parameters()) {
    parameter.value = parameter.value.detach().to(at::kBFloat16).requires_grad_();
  }
  EXPECT_EQ(model.llama.logits(batch).scalar_type(), at::kBFloat16);
  EXPECT_EQ(model.llama.loss_sum(batch).scalar_type(), at::kFloat);
  EXPECT_TRUE(std::isfinite(model.train(batch, targets)));
  EXPECT_EQ(model.list.parameters()[0].value.grad().scalar_type(), at::kBFloat16);
}

TEST(Llama, Lm10mHasItsStatedParameters) {
  const LlamaConfig lm10m{.vocab_size = 8192,
                          .hidden_size = 256,
                          .intermediate_size = 688,
                          .num_hidden_layers = 10,
                          .num_attention_heads = 8,
                          .num_key_value_heads = 8,
                          .head_dim = 32,
                          .rms_norm_eps = 1e-5,
                          .tie_word_embeddings = true};
  ParameterList list;
  const Llama llama(list, lm10m, rotary_frequencies(10'000, 32));
  EXPECT_EQ(list.numel(), 10'007'808);
  EXPECT_EQ(list.units().size(), 11U);
  // All but the 21 norms; the tied head counts as the product that it is.
  EXPECT_EQ(llama.matmul_parameters(), 10'007'808 - 21 * 256);
}

TEST(Llama, AnUntiedHeadIsAParameterOfTheRootUnit) {
  LlamaConfig config = kTinyLlama;
  config.tie_word_embeddings = false;
  Model model(config, rotary_frequencies(10'000, 16));
  EXPECT_EQ(model.list.numel(), 135'488 + 512 * 64);
  EXPECT_EQ(model.llama.matmul_parameters(), 135'488 - 5 * 64);
  std::map<std::string, std::int64_t> units;
  for (const auto& parameter : model.list.parameters()) {
    units[parameter.name] = parameter.unit;
  }
  EXPECT_EQ(units.at("model.embed_tokens.weight"), 0);
  EXPECT_EQ(units.at("model.norm.weight"), 0);
  EXPECT_EQ(units.at("lm_head.weight"), 0);
  EXPECT_EQ(units.at("model.layers.1.mlp.down_proj.weight"), 2);
}

struct Listener final : UnitObserver {
  void before_forward(std::int64_t unit, bool /*input_needs_gradient*/) override {
    heard.push_back("before forward " + std::to_string(unit));
  }
  void after_forward(std::int64_t unit) override { heard.push_back("after forward " + std::to_string(unit)); }
  void before_backward(std::int64_t unit) override { heard.push_back("before backward " + std::to_string(unit)); }
  void after_input_gradient(std::int64_t unit) override { heard.push_back("input gradient " + std::to_string(unit)); }
  std::vector<std::string> heard;
};

TEST(Llama, ThePassesOfEveryUnitAreAnnounced) {
  Model model(kTinyLlama, rotary_frequencies(10'000, 16));
  Listener listener;
  model.list.set_observer(&listener);
  const torch::Tensor ids = at::arange(24, at::kLong).view({2, 12});
  model.train({ids, ids, {}}, 22);
  EXPECT_THAT(listener.heard, ElementsAre("before forward 0", "before forward 1", "after forward 1", "before forward 2",
                                          "after forward 2", "after forward 0", "before backward 0", "before backward 2",
                                          "input gradient 2", "before backward 1", "input gradient 1"));
}

TEST(Rotary, FrequenciesAreThePublishedOnes) {
  const torch::Tensor found = rotary_frequencies(500'000, 64);
  // Golden values of Llama 3.2 1B below the indices that its scaling touches. The power carries the rounding of its exponent
  // (2^-24, times ln theta = 13.1), and one of its own.
  const std::map<std::int64_t, double> golden{{0, 1.0}, {1, 0.663601279}, {14, 0.00321144611}};
  for (const auto& [index, value] : golden) {
    EXPECT_NEAR(found[index].item<double>() / value, 1, 16 * 0x1.0p-24) << index;
  }
}

TEST(RmsNorm, StatisticsOfSmallTypesAreTakenInFp32) {
  ParameterList list;
  const RmsNorm norm(list, "norm", 256, 1e-5);
  list.parameters()[0].value = at::ones({256}, at::kBFloat16);
  const torch::Tensor x = (at::arange(1, 257, at::kFloat) / 29.0).to(at::kBFloat16).unsqueeze(0);
  const torch::Tensor exact = x.to(at::kDouble);
  // One rounding, at the end: 256 elements, none so near to a tie that errors of fp32 decide.
  const torch::Tensor wanted = (exact / (exact.square().mean() + 1e-5).sqrt()).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(norm.forward(x), wanted));
}

// What backward meets before the blocks: while only that trains, frozen blocks are not visited.
TEST(LlamaRoot, NormAndUntiedHeadLieBehindTheBlocks) {
  for (const bool tied : {true, false}) {
    auto config = kTinyLlama;
    config.tie_word_embeddings = tied;
    ParameterList list;
    const Llama llama(list, config, rotary_frequencies(1e4, config.head_dim));
    std::vector<std::string> behind;
    for (const auto& parameter : list.parameters()) {
      if (parameter.behind_units) {
        behind.push_back(parameter.name);
      }
    }
    EXPECT_EQ(behind, tied ? std::vector<std::string>{"model.norm.weight"}
                           : (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
  }
}

}  // namespace
}  // namespace shardmark::model

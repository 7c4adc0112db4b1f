#include <gtest/gtest.h>

#include <numeric>

#include "model/unit.hpp"
#include "tests/support/bound_workload.hpp"
#include "tests/support/config_folder.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tokens_writer.hpp"
#include "workloads/table.hpp"

namespace shardmark::workloads {
namespace {

using testing::make_bound;

config::RunConfig tiny() {
  config::RunConfig config;
  config.workload.name = "lm";
  config.model.vocab_size = 256;
  config.model.hidden_size = 64;
  config.model.intermediate_size = 160;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.rope_theta = 10'000;
  config.model.rms_norm_eps = 1e-5;
  config.model.tie_word_embeddings = true;
  config.data.sequence_length = 32;
  return config;
}

struct PassCounter final : model::UnitObserver {
  void before_forward(std::int64_t unit, bool /*input_needs_gradient*/) override { roots += unit == 0 ? 1 : 0; }
  void after_forward(std::int64_t /*unit*/) override {}
  void before_backward(std::int64_t /*unit*/) override {}
  void after_input_gradient(std::int64_t /*unit*/) override {}
  int roots = 0;
};

TEST(LanguageModel, HeadsDefaultToTheNamedOnesAndTheirWidthToAnEvenSplit) {
  EXPECT_EQ(make_workload(tiny())->parameters().numel(), 110'912);
}

TEST(LanguageModel, LlamaPresetsHaveThePublishedCounts) {
  const std::vector<std::pair<const char*, std::int64_t>> counts{{"llama3.2-1b-sft", 1'235'814'400},
                                                                 {"llama3.2-1b-sft-mini", 31'201'792},
                                                                 {"llama3.2-1b-sft-tiny", 135'488},
                                                                 {"llama3.1-8b-sft", 8'030'261'248},
                                                                 {"llama3.2-3b-lora", 3'212'749'824 + 24'313'856},
                                                                 {"llama3.2-3b-lora-tiny", 145'472},
                                                                 {"llama3.1-70b-lora", 70'553'706'496 + 207'093'760}};
  for (const auto& [preset, count] : counts) {
    EXPECT_EQ(make_workload(testing::load_preset({}, preset))->parameters().numel(), count) << preset;
  }
}

TEST(LanguageModel, AFillerTouchesNeitherTargetsNorLoss) {
  const auto workload = make_bound(tiny());
  const std::vector<std::int64_t> rows{5, 9};
  const std::vector<std::int64_t> filled{5, -1, 9, -1};
  EXPECT_EQ(workload->targets(rows), 62);
  EXPECT_EQ(workload->targets(filled), 62);
  EXPECT_EQ(workload->work(filled).samples, 2);
  EXPECT_EQ(workload->work(filled).padded_tokens, 64);
  const auto loss = [&](const auto& which) { return workload->loss_sum(workload->load(which, {})).template item<double>(); };
  // The same sum of 62 terms in another order: the bound of equally right runs, 2e-6.
  EXPECT_NEAR(loss(filled) / loss(rows), 1, 2e-6);
}

TEST(LanguageModel, EvaluationIsOnePassForAnyNumberOfRows) {
  config::RunConfig config = tiny();
  // Held-out rows come from a file; without one there are none.
  EXPECT_EQ(make_workload(config)->num_eval_rows(), 0);
  const testing::TemporaryFolder folder;
  testing::TokensToWrite content;
  content.input_ids.shape = content.labels.shape = {9, 32};
  for (int i = 0; i < 9 * 32; ++i) {
    content.input_ids.values.push_back(i % 251);
    content.labels.values.push_back(i % 32 == 0 ? -100 : i % 251);
  }
  testing::write_tokens(folder.file("held_out.h5"), content);
  config.data.eval_path = folder.file("held_out.h5");
  const auto workload = make_bound(config);
  PassCounter counter;
  workload->parameters().set_observer(&counter);
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> all(static_cast<std::size_t>(workload->num_eval_rows()));
  std::iota(all.begin(), all.end(), 0);
  ASSERT_EQ(all.size(), 9U);
  const auto whole = workload->evaluate(all);
  const auto none = workload->evaluate({});
  EXPECT_EQ(counter.roots, 2);
  EXPECT_EQ(none.sum, 0);
  EXPECT_EQ(none.weight, 0);
  EXPECT_EQ(whole.weight, 31.0 * static_cast<double>(all.size()));
  const auto front = workload->evaluate(std::span(all).first(3));
  const auto back = workload->evaluate(std::span(all).subspan(3));
  EXPECT_NEAR((front.sum + back.sum) / whole.sum, 1, 2e-6);
}

}  // namespace
}  // namespace shardmark::workloads

#include "model/embedding.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace shardmark::model {
namespace {

/// A table of 7 rows whose element c of row r is r + c / 16.
struct Table {
  explicit Table(at::ScalarType type) : embedding(list, "table", 7, 4) {
    auto& parameter = list.parameters().front();
    parameter.value = (at::arange(7).unsqueeze(1) + at::arange(4) / 16).to(type).requires_grad_();
  }
  [[nodiscard]] torch::Tensor& value() { return list.parameters().front().value; }

  ParameterList list;
  Embedding embedding;
};

TEST(Embedding, StartsWithinTheRootOfOneOverRows) {
  const Table table(at::kFloat);
  const auto& parameter = table.list.parameters().front();
  EXPECT_EQ(parameter.name, "table.weight");
  EXPECT_EQ(parameter.shape, (std::vector<std::int64_t>{7, 4}));
  EXPECT_DOUBLE_EQ(parameter.init.a, -std::sqrt(1.0 / 7));
  EXPECT_DOUBLE_EQ(parameter.init.b, std::sqrt(1.0 / 7));
}

class Embeddings : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Embeddings, LookUpAndDenseGradientAreLibTorchs) {
  Table table(GetParam());
  const torch::Tensor ids = at::tensor({5, 2, 5, 0, 5, 2}, at::kLong);
  const torch::Tensor rows = table.embedding.forward(ids);
  EXPECT_TRUE(rows.equal(at::embedding(table.value(), ids)));
  EXPECT_EQ(rows.scalar_type(), GetParam());
  // Eighths: sums of three are exact in bf16 too.
  const torch::Tensor factor = (at::arange(24).reshape({6, 4}) / 8).to(GetParam());
  (rows * factor).sum().backward();
  const torch::Tensor found = table.value().grad();
  EXPECT_TRUE(found.equal(at::embedding_dense_backward(factor, ids, 7, -1, false)));
  for (const std::int64_t untouched : {1, 3, 4, 6}) {
    EXPECT_EQ(found[untouched].abs().max().item<double>(), 0) << untouched;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Embeddings, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(Embedding, AddsRowsOfOneIdInFp32) {
  Table table(at::kBFloat16);
  // In bf16 256 + 1 is 256: added one by one there, the ones would be lost.
  const torch::Tensor ids = at::full({257}, 3, at::kLong);
  torch::Tensor factor = at::ones({257, 4}, at::kBFloat16);
  factor[0].fill_(256);
  (table.embedding.forward(ids) * factor).sum().backward();
  EXPECT_EQ(table.value().grad()[3][0].item<double>(), 512);
}

}  // namespace
}  // namespace shardmark::model

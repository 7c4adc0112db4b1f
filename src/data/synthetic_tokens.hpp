#pragma once
// Made-up rows of tokens, each token a pure function of (seed, row, position): the same for every rank count and technique.
// Small tokens are more frequent (token = vocabulary x u^2, u uniform), so a model can learn 1 - ln 2 = 0.307 nats of it.

#include <cstdint>
#include <span>
#include <string>

#include "base/random.hpp"
#include "data/token_source.hpp"

namespace shardmark::data {

struct SyntheticTokensOptions {
  std::int64_t num_rows = 0;
  std::int64_t length = 0;
  std::int64_t vocabulary = 0;
  std::uint64_t seed = 0;
};

class SyntheticTokens final : public TokenSource {
 public:
  /// Throws ConfigError naming each number that is wrong.
  explicit SyntheticTokens(const SyntheticTokensOptions& options);

  [[nodiscard]] std::int64_t num_rows() const override { return options_.num_rows; }
  [[nodiscard]] std::int64_t length() const override { return options_.length; }
  [[nodiscard]] bool has_segments() const override { return false; }
  [[nodiscard]] TokenCounts counts(std::int64_t row) const override;
  [[nodiscard]] TokenCounts total() const override;
  [[nodiscard]] std::string describe() const override { return "synthetic"; }
  void read(std::span<const std::int64_t> rows, const TokenRows& out) override;

 private:
  SyntheticTokensOptions options_;
  base::RandomStream stream_;
};

}  // namespace shardmark::data

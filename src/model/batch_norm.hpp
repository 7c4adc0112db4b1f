#pragma once
// Batch normalisation with each choice of whose statistics count. Single-device code: what other ranks computed comes through
// ParameterList::sums().
// Letters: N images, C channels, H and W pixels.

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "model/parameter.hpp"

namespace shardmark::model {

enum class BatchStatistics : std::uint8_t {
  local,    // of the rows that this rank runs together
  sync,     // of the rows that all ranks run together
  running,  // those met so far, left as they are
  frozen    // the same, and weight and bias are buffers too
};

/// Which rows a pass has.
struct VisionPass {
  bool training = true;
  /// Rows from the first on that count in statistics; the others are fillers. Either all or none.
  std::int64_t counted_rows = 0;
};

/// (x - mean) / sqrt(variance + 1e-5) x weight + bias. Running statistics move by 0.1 of the way, with the unbiased variance.
/// Without counted rows `local` uses the running ones, and `sync` those of the other ranks.
class BatchNorm {
 public:
  BatchNorm(ParameterList& list, const std::string& name, std::int64_t channels, BatchStatistics statistics);
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& x_NCHW, const VisionPass& pass) const;

 private:
  [[nodiscard]] torch::Tensor normalise(const torch::Tensor& x_NCHW, bool by_batch, bool updates) const;
  [[nodiscard]] torch::Tensor weight() const;
  [[nodiscard]] torch::Tensor bias() const;

  const ParameterList* list_;
  BatchStatistics statistics_;
  Parameter* weight_ = nullptr;  // nullptr: the buffers below
  Parameter* bias_ = nullptr;
  NamedBuffer* fixed_weight_ = nullptr;
  NamedBuffer* fixed_bias_ = nullptr;
  NamedBuffer* running_mean_;
  NamedBuffer* running_variance_;
  NamedBuffer* batches_ = nullptr;  // int64: how many moved them; nothing here reads it
};

/// The layer with the statistics of the counted rows of all ranks. `running_mean` and `running_variance` move, unless
/// undefined. Sums are doubles, so that the same rows give the same statistics however they are spread, to their last bits.
[[nodiscard]] torch::Tensor synchronised_batch_norm(const torch::Tensor& x_NCHW, const torch::Tensor& weight_C,
                                                    const torch::Tensor& bias_C, torch::Tensor running_mean,
                                                    torch::Tensor running_variance, bool counts, SumOverRanks* sums);

}  // namespace shardmark::model

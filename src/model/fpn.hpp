#pragma once
// Feature pyramid: P3 to P5 from the backbone's C3 to C5, each with what the coarser level knows, and P6 and P7 above.
// Letters as in convolution.hpp.

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "model/convolution.hpp"

namespace shardmark::model {

enum class P6From : std::uint8_t { c5, p5 };

/// One unit.
class FeaturePyramid {
 public:
  FeaturePyramid(ParameterList& list, const std::string& name, const std::array<std::int64_t, 3>& channels_in,
                 std::int64_t channels, P6From p6_from);
  /// C3, C4, C5 -> P3, ..., P7.
  [[nodiscard]] std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& features) const;
  /// Sizes of P3 to P7, and the multiply-adds of all in the last; `features`: sizes of C3, C4, C5.
  [[nodiscard]] std::vector<ConvolutionCost> costs(const std::vector<ConvolutionCost>& features) const;

 private:
  const ParameterList* list_;
  std::int64_t unit_;
  P6From p6_from_;
  std::deque<Convolution> inner_;  // 1 x 1
  std::deque<Convolution> layer_;  // 3 x 3
  Convolution p6_, p7_;
};

}  // namespace shardmark::model

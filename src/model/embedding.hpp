#pragma once
// A table of vectors, looked up by id, with a dense gradient. Letters: V rows of the table, C width, N ids.

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "model/parameter.hpp"

namespace shardmark::model {

class Embedding {
 public:
  /// Weight (V, C) starts uniform in +-sqrt(1/V).
  Embedding(ParameterList& list, const std::string& name, std::int64_t rows, std::int64_t width);
  /// (N, C) of int64 ids (N). In the gradient only the rows that ids name are not zero: each is the sum over its ids in fp32,
  /// in their order (on a device in LibTorch's).
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& ids_N) const;

 private:
  Parameter* weight_;
};

}  // namespace shardmark::model

#pragma once
// The element types of one run and what follows from them.

#include <cstdint>

#include "base/dtype.hpp"

namespace shardmark::parallel {

struct Precision {
  base::DType parameters = base::DType::fp32;  // what the optimizer updates
  base::DType compute = base::DType::fp32;     // forward and backward; never wider than `parameters`
  base::DType reduce = base::DType::fp32;      // gradients on the wire
  base::DType state = base::DType::fp32;       // optimizer state
  base::DType frozen = base::DType::fp32;      // parameters that do not train, as stored
  std::int64_t state_block = 1;                // elements that share something in the optimizer's states

  /// The optimizer's copy is another than the one forward and backward use.
  [[nodiscard]] bool has_master() const { return parameters != compute; }
  /// Of the buffers in which gradients rest between micro-steps.
  [[nodiscard]] base::DType gradient(std::int64_t micro_steps) const { return micro_steps > 1 ? base::DType::fp32 : reduce; }
  /// Elements to which every tensor and shard border is aligned: 64 bytes of the narrowest working, reduce or state type, so
  /// that vector loops split at the same places in every technique; and whole blocks of states.
  [[nodiscard]] std::int64_t alignment() const {
    std::size_t narrowest = 8;
    for (const auto type : {parameters, compute, reduce, state, frozen}) {
      narrowest = size_of(type) < narrowest ? size_of(type) : narrowest;
    }
    const auto line = static_cast<std::int64_t>(64 / narrowest);
    return line > state_block ? line : state_block;
  }
};

[[nodiscard]] inline std::int64_t bytes_of(base::DType type) {
  return static_cast<std::int64_t>(base::size_of(type));
}

}  // namespace shardmark::parallel

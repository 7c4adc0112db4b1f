#include "kernels/convert.hpp"

#include "base/vector_clones.hpp"

namespace shardmark::kernels {
namespace {

SM_VECTOR_CLONES void widen_all(float* __restrict into, const Bf16* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = Element<Bf16>::widen(from[i]);
  }
}

SM_VECTOR_CLONES void round_all(Bf16* __restrict into, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = Element<Bf16>::round(from[i]);
  }
}

}  // namespace

void convert(float* into, const Bf16* from, std::size_t count) {
  widen_all(into, from, count);
}

void convert(Bf16* into, const float* from, std::size_t count) {
  round_all(into, from, count);
}

}  // namespace shardmark::kernels

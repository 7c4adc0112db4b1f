#include "kernels/move.hpp"

#include "kernels/float_types.hpp"
#include "kernels/move_core.hpp"

namespace shardmark::kernels {
namespace {

template <typename Into, typename From>
void move_typed(const Move& move) {
  auto* into = static_cast<Into*>(move.into);
  const auto* from = static_cast<const From*>(move.from);
  bool finite = true;
  for (std::int64_t i = 0; i < move.count; ++i) {
    finite = finite && is_finite(from[i]);
    if constexpr (std::is_same_v<Into, float>) {
      into[i] = move.add ? into[i] + scaled(from[i], move.scale) : moved<Into>(from[i], move.scale);
    } else {
      into[i] = moved<Into>(from[i], move.scale);
    }
  }
  if (!finite && move.not_finite != nullptr) {
    *move.not_finite = 1;
  }
}

}  // namespace

void move_scaled(const Move& move) {
  SM_CHECK(!move.add || move.into_type == base::DType::fp32, "a move adds to fp32 only");
  with_float_type(move.into_type, "the target of a move", [&](auto into) {
    with_float_type(move.from_type, "the source of a move",
                    [&](auto from) { move_typed<decltype(into), decltype(from)>(move); });
  });
}

}  // namespace shardmark::kernels

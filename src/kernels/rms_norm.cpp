#include "kernels/rms_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/vector_clones.hpp"

namespace shardmark::kernels {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kRowsAtOnce = 16;

template <typename T>
SM_INLINE_IN_CLONES float widen(T value) {
  return Element<T>::widen(value);
}

SM_INLINE_IN_CLONES float add_lanes(const float* lanes) {
  float sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sum += lanes[lane];
  }
  return sum;
}

/// Lane l adds the squares of elements l, l + 16, ...
template <typename T>
SM_INLINE_IN_CLONES float squares_of(const T* x, std::int64_t width) {
  float lanes[kLanes] = {};
  const std::int64_t whole = width - width % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += widen(x[i + lane]) * widen(x[i + lane]);
    }
  }
  for (std::int64_t i = whole; i < width; ++i) {
    lanes[i - whole] += widen(x[i]) * widen(x[i]);
  }
  return add_lanes(lanes);
}

/// Of dy w x, likewise.
template <typename T>
SM_INLINE_IN_CLONES float products_of(const T* dy, const T* weight, const T* x, std::int64_t width) {
  float lanes[kLanes] = {};
  const std::int64_t whole = width - width % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += widen(dy[i + lane]) * widen(weight[i + lane]) * widen(x[i + lane]);
    }
  }
  for (std::int64_t i = whole; i < width; ++i) {
    lanes[i - whole] += widen(dy[i]) * widen(weight[i]) * widen(x[i]);
  }
  return add_lanes(lanes);
}

template <typename T>
SM_INLINE_IN_CLONES void scale_row(const T* __restrict x, const T* __restrict weight, float inverse, std::int64_t width,
                                   T* __restrict y) {
  for (std::int64_t i = 0; i < width; ++i) {
    const T normalised = Element<T>::round(widen(x[i]) * inverse);
    y[i] = Element<T>::round(widen(normalised) * widen(weight[i]));
  }
}

template <typename T>
SM_INLINE_IN_CLONES void input_gradient(const T* __restrict dy, const T* __restrict x, const T* __restrict weight,
                                        float inverse, float share, std::int64_t width, T* __restrict dx) {
  for (std::int64_t i = 0; i < width; ++i) {
    dx[i] = Element<T>::round(inverse * (widen(dy[i]) * widen(weight[i]) - widen(x[i]) * share));
  }
}

template <typename T>
SM_INLINE_IN_CLONES void add_weight_gradient(const T* __restrict dy, const T* __restrict x, float inverse, std::int64_t width,
                                             float* __restrict sum) {
  for (std::int64_t i = 0; i < width; ++i) {
    sum[i] += widen(dy[i]) * widen(Element<T>::round(widen(x[i]) * inverse));
  }
}

// Clones are made of plain functions, not of templates: one set for each type.

SM_VECTOR_CLONES float row_squares(const float* x, std::int64_t width) {
  return squares_of(x, width);
}
SM_VECTOR_CLONES float row_squares(const Bf16* x, std::int64_t width) {
  return squares_of(x, width);
}
SM_VECTOR_CLONES void forward_row(const float* x, const float* weight, float inverse, std::int64_t width, float* y) {
  scale_row(x, weight, inverse, width, y);
}
SM_VECTOR_CLONES void forward_row(const Bf16* x, const Bf16* weight, float inverse, std::int64_t width, Bf16* y) {
  scale_row(x, weight, inverse, width, y);
}
SM_VECTOR_CLONES void input_row(const float* dy, const float* x, const float* weight, float inverse, std::int64_t width,
                                float* dx) {
  const float mean = products_of(dy, weight, x, width) / static_cast<float>(width);
  input_gradient(dy, x, weight, inverse, inverse * inverse * mean, width, dx);
}
SM_VECTOR_CLONES void input_row(const Bf16* dy, const Bf16* x, const Bf16* weight, float inverse, std::int64_t width,
                                Bf16* dx) {
  const float mean = products_of(dy, weight, x, width) / static_cast<float>(width);
  input_gradient(dy, x, weight, inverse, inverse * inverse * mean, width, dx);
}
SM_VECTOR_CLONES void weight_row(const float* dy, const float* x, float inverse, std::int64_t width, float* sum) {
  add_weight_gradient(dy, x, inverse, width, sum);
}
SM_VECTOR_CLONES void weight_row(const Bf16* dy, const Bf16* x, float inverse, std::int64_t width, float* sum) {
  add_weight_gradient(dy, x, inverse, width, sum);
}
SM_VECTOR_CLONES void add_row(const float* __restrict part, std::int64_t width, float* __restrict sum) {
  for (std::int64_t i = 0; i < width; ++i) {
    sum[i] += part[i];
  }
}

}  // namespace

template <typename T>
void rms_norm(const T* x_RC, const T* weight_C, double epsilon, RmsNormShape shape, T* y_RC, float* inverse_R) {
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const T* x = x_RC + row * shape.width;
    const float mean = row_squares(x, shape.width) / static_cast<float>(shape.width);
    inverse_R[row] = 1.0F / std::sqrt(mean + static_cast<float>(epsilon));
    forward_row(x, weight_C, inverse_R[row], shape.width, y_RC + row * shape.width);
  }
}

template <typename T>
void rms_norm_backward(const RmsNormInputs<T>& inputs, RmsNormShape shape, T* dx_RC, T* dweight_C) {
  const auto width = static_cast<std::size_t>(shape.width);
  std::vector<float> sum(dweight_C != nullptr ? width : 0);
  std::vector<float> part(sum.size());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t at = row * shape.width;
    const float inverse = inputs.inverse_R[row];
    if (dx_RC != nullptr) {
      input_row(inputs.dy_RC + at, inputs.x_RC + at, inputs.weight_C, inverse, shape.width, dx_RC + at);
    }
    if (dweight_C != nullptr) {
      weight_row(inputs.dy_RC + at, inputs.x_RC + at, inverse, shape.width, part.data());
      if ((row + 1) % kRowsAtOnce == 0 || row + 1 == shape.rows) {
        add_row(part.data(), shape.width, sum.data());
        std::ranges::fill(part, 0.0F);
      }
    }
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    dweight_C[i] = Element<T>::round(sum[i]);
  }
}

template void rms_norm(const float*, const float*, double, RmsNormShape, float*, float*);
template void rms_norm(const Bf16*, const Bf16*, double, RmsNormShape, Bf16*, float*);
template void rms_norm_backward(const RmsNormInputs<float>&, RmsNormShape, float*, float*);
template void rms_norm_backward(const RmsNormInputs<Bf16>&, RmsNormShape, Bf16*, Bf16*);

}  // namespace shardmark::kernels

#pragma once
// AdamW whose moments rest as 8-bit codes, a block of 256 values sharing one scale: on the host and, by the same
// arithmetic, on the device. Knows nothing of parameters' names or shards: a block's result depends on its values and the step
// alone.
//
// Codes are powers, finest near zero, where most moments lie: a first moment is scale x sign(c) (c/127)^2 with c in [-127,
// 127], a second one scale x (c/255)^4 with c in [0, 255], the scale being the block's largest magnitude. Values between two
// codes go to one of them with probabilities that keep their mean: with plain rounding a second moment that loses a thousandth
// a step would never leave its code. The draw is a hash of the value's bits and the step, so equal moments give equal codes on
// every rank. A second moment above zero never takes the code 0, which would divide by eps alone.
//
// What codes may cost: the held-out loss of lm10m-tiny on English text (lr 1e-3, 200 steps, from 5.5 to 2.6), mean over 5 data
// seeds, lies at most 3 sd x sqrt(2 / 5) above that of fp32 states, sd being that of fp32 states over the same seeds: if codes
// cost nothing, the two means differ by chance alone, with a standard deviation of a third of that. tests/e2e/test_adamw8bit.py
// holds runs to it. On the licence texts of Debian 12: sd 0.023, so a bound of 0.043, and found 0.008 below; after 800
// steps (1.90) a bound of 0.068, and found 0.001 above. Scales that were set once and not again cost 0.35.

#include <cstdint>

#include "kernels/step_scalars.hpp"
#include "kernels/update_range.hpp"

namespace shardmark::kernels {

inline constexpr std::int64_t kAdam8bitBlock = 256;

struct Adam8bitStep {
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0;  // decoupled
  float coefficient = 1;   // of the gradient
  std::int64_t step = 1;   // from 1: bias correction and draws
};

struct Adam8bitMoments {
  std::int8_t* first = nullptr;    // codes, one an element
  std::uint8_t* second = nullptr;  // likewise
  float* first_scale = nullptr;    // one a block
  float* second_scale = nullptr;   // likewise
};

/// Updates `count` elements, a multiple of kAdam8bitBlock, as Loshchilov and Hutter 2019 with the moments as decoded; the
/// update uses the new moments before they are coded. Gradients must be finite. Does not allocate.
void adam8bit_update(float* parameters, const float* gradients, const Adam8bitMoments& moments, std::int64_t count,
                     const Adam8bitStep& step);

/// The same for any types that a range may have, where the step lies in memory: coefficient, count and bias corrections are
/// those of `state`, the rule's own are not read. Equal numbers give equal codes: so bias corrections must be of the rule's
/// betas, which are fp32.
void adam8bit_update(const UpdateRange& range, const Adam8bitMoments& moments, const Adam8bitStep& rule,
                     const UpdateState* state);

#ifdef SM_WITH_CUDA
/// As that, bit for bit, in device memory, `state` included; codes start at multiples of 8 bytes. Enqueues on `stream` (a
/// cudaStream_t) and returns. Throws base::Error if the launch fails.
void adam8bit_update_device(const UpdateRange& range, const Adam8bitMoments& moments, const Adam8bitStep& rule,
                            const UpdateState* state, void* stream);
#endif

/// The values that codes stand for, for tests and for whoever saves states.
[[nodiscard]] float adam8bit_first(std::int8_t code, float scale);
[[nodiscard]] float adam8bit_second(std::uint8_t code, float scale);

}  // namespace shardmark::kernels

// The device's updates against their host builds: the same bits, for every type, at aligned and other addresses; and one whole
// step, from gradients to the working copy. Skips with a reason where there is no device.

#include "kernels/update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/adam8bit.hpp"
#include "kernels/squares.hpp"
#include "kernels/step_control.hpp"
#include "tests/support/elements.hpp"
#include "tests/support/on_device.hpp"

namespace shardmark::kernels {
namespace {

using testing::DeviceArray;
using testing::kKernelSizes;
using testing::kTypeOf;
using testing::normal_elements;
using UpdatesOnDevice = testing::OnDevice;

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

UpdateState state_of(std::int64_t steps) {
  const auto power = static_cast<double>(steps);
  return {.steps = steps,
          .applies = 1,
          .coefficient = 0.7F,
          .bias_correction1 = 1 - std::pow(0.9, power),
          .bias_correction2 = 1 - std::pow(0.999, power)};
}

/// Parameters, gradients and two states on the host, and how they lie on the device.
template <typename P, typename G, typename S>
struct Operands {
  explicit Operands(std::int64_t size)
      : parameters(normal_elements<P>("parameters", size)),
        gradients(normal_elements<G>("gradients", size, 0.1F)),
        first(normal_elements<S>("first", size, 0.05F)),
        second(normal_elements<S>("second", size, 0.1F)),
        working(parameters.size()) {
    for (auto& value : second) {
      value = Element<S>::round(Element<S>::widen(value) * Element<S>::widen(value));
    }
  }

  std::vector<P> parameters;
  std::vector<G> gradients;
  std::vector<S> first;
  std::vector<S> second;
  std::vector<Bf16> working;
};

template <typename P, typename G, typename S>
struct DeviceOperands {
  /// All `shift` elements behind aligned addresses; gradients and the working copy that many more.
  DeviceOperands(const Operands<P, G, S>& from, std::size_t shift, std::size_t gradients_more = 0, std::size_t working_more = 0)
      : parameters(from.parameters, shift),
        gradients(from.gradients, shift + gradients_more),
        first(from.first, shift),
        second(from.second, shift),
        working(from.working, shift + working_more) {}

  DeviceArray<P> parameters;
  DeviceArray<G> gradients;
  DeviceArray<S> first;
  DeviceArray<S> second;
  DeviceArray<Bf16> working;
};

template <typename P, typename G, typename S>
UpdateRange range_of(P* parameters, const G* gradients, S* /*state*/, Bf16* working, std::int64_t size) {
  return {.parameters = parameters,
          .parameters_type = kTypeOf<P>,
          .gradients = gradients,
          .gradients_type = kTypeOf<G>,
          .working = working,
          .count = size};
}

template <typename P, typename G, typename S>
void expect_equal(const Operands<P, G, S>& host, const DeviceOperands<P, G, S>& device, const std::string& what) {
  EXPECT_TRUE(same_bits(device.parameters.values(), host.parameters)) << "parameters, " << what;
  EXPECT_TRUE(same_bits(device.first.values(), host.first)) << "first state, " << what;
  EXPECT_TRUE(same_bits(device.second.values(), host.second)) << "second state, " << what;
  EXPECT_TRUE(same_bits(device.working.values(), host.working)) << "working copy, " << what;
}

/// Elements behind aligned addresses, and how many more.
struct Shifts {
  std::size_t all = 0;
  std::size_t gradients = 0;
  std::size_t working = 0;
};

template <typename P, typename G, typename S>
void expect_updates_equal_to_host() {
  for (const std::int64_t size : kKernelSizes) {
    for (const bool with_working : {true, false}) {
      for (const Shifts& shifts : {Shifts{}, Shifts{.all = 3}, Shifts{.gradients = 1}, Shifts{.working = 1}}) {
        const Operands<P, G, S> before(size);
        const std::string what = std::to_string(size) + " elements, shifts " + std::to_string(shifts.all) + ", " +
                                 std::to_string(shifts.gradients) + ", " + std::to_string(shifts.working);
        const UpdateState state = state_of(7);
        const DeviceArray<UpdateState> device_state(state);
        const auto host_range = [&](Operands<P, G, S>& o) {
          return range_of(o.parameters.data(), o.gradients.data(), o.first.data(), with_working ? o.working.data() : nullptr,
                          size);
        };
        const auto device_range = [&](const DeviceOperands<P, G, S>& o) {
          return range_of(o.parameters.data(), o.gradients.data(), o.first.data(), with_working ? o.working.data() : nullptr,
                          size);
        };
        for (const bool decoupled : {true, false}) {
          auto host = before;
          const DeviceOperands<P, G, S> device(before, shifts.all, shifts.gradients, shifts.working);
          const AdamRule rule{.lr = 3e-3, .weight_decay = 0.1, .decoupled = decoupled};
          adamw_update(host_range(host), {host.first.data(), host.second.data(), kTypeOf<S>}, rule, &state);
          adamw_update_device(device_range(device), {device.first.data(), device.second.data(), kTypeOf<S>}, rule,
                              device_state.data(), nullptr);
          expect_equal(host, device, what + (decoupled ? ", adamw" : ", adam"));
        }
        for (const double momentum : {0.9, 0.0}) {
          auto host = before;
          const DeviceOperands<P, G, S> device(before, shifts.all, shifts.gradients, shifts.working);
          const SgdRule rule{.lr = 0.05, .momentum = momentum, .weight_decay = 0.01};
          sgd_update(host_range(host), momentum != 0 ? host.first.data() : nullptr, kTypeOf<S>, rule, &state);
          sgd_update_device(device_range(device), momentum != 0 ? device.first.data() : nullptr, kTypeOf<S>, rule,
                            device_state.data(), nullptr);
          expect_equal(host, device, what + ", sgd");
        }
      }
    }
  }
}

TEST_F(UpdatesOnDevice, EqualTheHostForFp32Parameters) {
  expect_updates_equal_to_host<float, float, float>();
  expect_updates_equal_to_host<float, Bf16, float>();
  expect_updates_equal_to_host<float, float, Bf16>();
  expect_updates_equal_to_host<float, Bf16, Bf16>();
}

TEST_F(UpdatesOnDevice, EqualTheHostForBf16Parameters) {
  expect_updates_equal_to_host<Bf16, float, float>();
  expect_updates_equal_to_host<Bf16, Bf16, float>();
  expect_updates_equal_to_host<Bf16, float, Bf16>();
  expect_updates_equal_to_host<Bf16, Bf16, Bf16>();
}

TEST_F(UpdatesOnDevice, TheFirstStepOfSgdTakesTheGradientAsMomentum) {
  const Operands<float, float, float> before(1003);
  auto host = before;
  const DeviceOperands<float, float, float> device(before, 0);
  const UpdateState state = state_of(1);
  const DeviceArray<UpdateState> device_state(state);
  const SgdRule rule{.lr = 0.05, .momentum = 0.9};
  sgd_update(range_of(host.parameters.data(), host.gradients.data(), host.first.data(), host.working.data(), 1003),
             host.first.data(), base::DType::fp32, rule, &state);
  sgd_update_device(
      range_of(device.parameters.data(), device.gradients.data(), device.first.data(), device.working.data(), 1003),
      device.first.data(), base::DType::fp32, rule, device_state.data(), nullptr);
  expect_equal(host, device, "first step");
}

TEST_F(UpdatesOnDevice, AStepThatDoesNotApplyChangesNothing) {
  const Operands<float, float, float> before(1003);
  const DeviceOperands<float, float, float> device(before, 0);
  const DeviceArray<UpdateState> state{UpdateState{.steps = 3}};
  const UpdateRange range =
      range_of(device.parameters.data(), device.gradients.data(), device.first.data(), device.working.data(), 1003);
  adamw_update_device(range, {device.first.data(), device.second.data()}, {.lr = 1}, state.data(), nullptr);
  sgd_update_device(range, device.first.data(), base::DType::fp32, {.lr = 1, .momentum = 0.9}, state.data(), nullptr);
  expect_equal(before, device, "skipped");
}

template <typename P, typename G>
void expect_8bit_equal_to_host(std::size_t shift) {
  constexpr std::int64_t kCount = 5000 * kAdam8bitBlock;
  constexpr std::size_t kBlocks = 5000;
  auto parameters = normal_elements<P>("parameters", kCount);
  std::vector<std::int8_t> first(kCount, 0);
  std::vector<std::uint8_t> second(kCount, 0);
  std::vector<float> first_scale(kBlocks, 0);
  std::vector<float> second_scale(kBlocks, 0);
  std::vector<Bf16> working(kCount);
  const DeviceArray<P> device_parameters(parameters, shift);
  const DeviceArray<std::int8_t> device_first(first);
  const DeviceArray<std::uint8_t> device_second(second);
  const DeviceArray<float> device_first_scale(first_scale);
  const DeviceArray<float> device_second_scale(second_scale);
  const DeviceArray<Bf16> device_working(working, shift);
  const Adam8bitStep rule{.lr = 0.01F, .weight_decay = 0.1F};
  for (std::int64_t step = 1; step <= 5; ++step) {
    // Zeros, the smallest scales, ordinary ones.
    auto gradients = normal_elements<G>("gradients " + std::to_string(step), kCount, 0.1F);
    for (std::size_t i = 0; i < 2 * kAdam8bitBlock; ++i) {
      gradients[i] = Element<G>::round(i < kAdam8bitBlock ? 0 : Element<G>::widen(gradients[i]) * 1e-36F);
    }
    const UpdateState state = state_of(step);
    const DeviceArray<UpdateState> device_state(state);
    const DeviceArray<G> device_gradients(gradients, shift);
    adam8bit_update(range_of(parameters.data(), gradients.data(), first.data(), working.data(), kCount),
                    {first.data(), second.data(), first_scale.data(), second_scale.data()}, rule, &state);
    adam8bit_update_device(
        range_of(device_parameters.data(), device_gradients.data(), first.data(), device_working.data(), kCount),
        {device_first.data(), device_second.data(), device_first_scale.data(), device_second_scale.data()}, rule,
        device_state.data(), nullptr);
    EXPECT_TRUE(same_bits(device_parameters.values(), parameters)) << "step " << step << ", shift " << shift;
    EXPECT_TRUE(same_bits(device_first.values(), first)) << "step " << step << ", shift " << shift;
    EXPECT_TRUE(same_bits(device_second.values(), second)) << "step " << step << ", shift " << shift;
    EXPECT_TRUE(same_bits(device_first_scale.values(), first_scale)) << "step " << step << ", shift " << shift;
    EXPECT_TRUE(same_bits(device_second_scale.values(), second_scale)) << "step " << step << ", shift " << shift;
    EXPECT_TRUE(same_bits(device_working.values(), working)) << "step " << step << ", shift " << shift;
  }
}

TEST_F(UpdatesOnDevice, EightBitCodesEqualTheHosts) {
  for (const std::size_t shift : {0U, 1U}) {
    expect_8bit_equal_to_host<float, float>(shift);
    expect_8bit_equal_to_host<float, Bf16>(shift);
    expect_8bit_equal_to_host<Bf16, Bf16>(shift);
  }
}

TEST_F(UpdatesOnDevice, AWholeStepOnOneStreamEqualsTheHost) {
  // Norm, clipping, the step's numbers and the update follow on each other; the host looks only after the last.
  constexpr std::int64_t kCount = (std::int64_t{1} << 20) + 7;
  const Operands<float, Bf16, float> before(kCount);
  auto host = before;
  const DeviceOperands<float, Bf16, float> device(before, 0);
  StepScalars scalars;
  scalars.loss = 2.5;
  UpdateState state;
  const DeviceArray<StepScalars> device_scalars(scalars);
  const DeviceArray<UpdateState> device_state(state);
  const DeviceArray<double> scratch(
      std::vector<double>(static_cast<std::size_t>(sum_of_squares_scratch_bytes()) / sizeof(double)));
  const NormRule norm{.clip = 1};
  const AdamRule rule{.lr = 3e-3, .weight_decay = 0.1};
  cudaStream_t stream = nullptr;
  testing::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  sum_of_squares_device(device.gradients.data(), base::DType::bf16, kCount, device_scalars.data(), scratch.data(), stream);
  finish_norm_device(device_scalars.data(), norm, stream);
  begin_update_device(device_scalars.data(), device_state.data(), rule.beta1, rule.beta2, stream);
  adamw_update_device(
      range_of(device.parameters.data(), device.gradients.data(), device.first.data(), device.working.data(), kCount),
      {device.first.data(), device.second.data()}, rule, device_state.data(), stream);
  testing::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  testing::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");

  sum_of_squares(host.gradients.data(), base::DType::bf16, kCount, &scalars);
  finish_norm(&scalars, norm);
  begin_update(&scalars, &state, rule.beta1, rule.beta2);
  const StepScalars found = device_scalars.value();
  EXPECT_EQ(found.norm, scalars.norm);
  EXPECT_EQ(found.coefficient, scalars.coefficient);
  EXPECT_LT(found.coefficient, 1) << "the step is clipped, or this test shows less than it says";
  EXPECT_EQ(found.applied, 1);
  // Bias corrections may differ in their last bits (step_kernels_test.cpp): the update is compared from the device's.
  const UpdateState device_numbers = device_state.value();
  EXPECT_EQ(device_numbers.steps, state.steps);
  adamw_update(range_of(host.parameters.data(), host.gradients.data(), host.first.data(), host.working.data(), kCount),
               {host.first.data(), host.second.data()}, rule, &device_numbers);
  expect_equal(host, device, "a whole step");
}

}  // namespace
}  // namespace shardmark::kernels

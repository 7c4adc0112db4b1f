#include "optim/cuda_optimizer.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"
#include "kernels/adam8bit.hpp"
#include "kernels/step_control.hpp"
#include "kernels/update.hpp"
#include "optim/block_states.hpp"

namespace shardmark::optim {
namespace {

base::DType dtype_of(const at::Tensor& tensor) {
  SM_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16,
           "parameters, gradients and their copies are fp32 or bf16");
  return tensor.scalar_type() == at::kFloat ? base::DType::fp32 : base::DType::bf16;
}

void* element_at(const at::Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) + element * tensor.element_size();
}

kernels::UpdateRange kernel_range(const Range& range, const at::Tensor& working, const Segment& segment) {
  kernels::UpdateRange part{.parameters = element_at(range.parameters, segment.begin),
                            .parameters_type = dtype_of(range.parameters),
                            .gradients = element_at(range.gradients, segment.begin),
                            .gradients_type = dtype_of(range.gradients),
                            .count = segment.end - segment.begin};
  if (working.defined()) {
    part.working = element_at(working, segment.begin);
    part.working_type = dtype_of(working);
  }
  return part;
}

// Each kernel where the memory lies. Without CUDA `take` refuses a device's memory.

void begin(bool on_cuda, const kernels::StepScalars* scalars, kernels::UpdateState* state, double beta1, double beta2,
           [[maybe_unused]] void* stream) {
#ifdef SM_WITH_CUDA
  if (on_cuda) {
    return kernels::begin_update_device(scalars, state, beta1, beta2, stream);
  }
#endif
  kernels::begin_update(scalars, state, beta1, beta2);
}

void adamw(bool on_cuda, const kernels::UpdateRange& range, const kernels::AdamMoments& moments, const kernels::AdamRule& rule,
           const kernels::UpdateState* state, [[maybe_unused]] void* stream) {
#ifdef SM_WITH_CUDA
  if (on_cuda) {
    return kernels::adamw_update_device(range, moments, rule, state, stream);
  }
#endif
  kernels::adamw_update(range, moments, rule, state);
}

void sgd(bool on_cuda, const kernels::UpdateRange& range, void* momentum, base::DType type, const kernels::SgdRule& rule,
         const kernels::UpdateState* state, [[maybe_unused]] void* stream) {
#ifdef SM_WITH_CUDA
  if (on_cuda) {
    return kernels::sgd_update_device(range, momentum, type, rule, state, stream);
  }
#endif
  kernels::sgd_update(range, momentum, type, rule, state);
}

void adam8bit(bool on_cuda, const kernels::UpdateRange& range, const kernels::Adam8bitMoments& moments,
              const kernels::Adam8bitStep& rule, const kernels::UpdateState* state, [[maybe_unused]] void* stream) {
#ifdef SM_WITH_CUDA
  if (on_cuda) {
    return kernels::adam8bit_update_device(range, moments, rule, state, stream);
  }
#endif
  kernels::adam8bit_update(range, moments, rule, state);
}

/// sgd, adam, adamw: a state's element for each parameter.
class ElementwiseOptimizer final : public CudaOptimizer {
 public:
  explicit ElementwiseOptimizer(const OptimizerOptions& options) : CudaOptimizer(names_of(options), options) {}

 private:
  static std::vector<std::string> names_of(const OptimizerOptions& options) {
    if (options.name != "sgd") {
      return {"exp_avg", "exp_avg_sq"};
    }
    return options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
  }
  [[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t /*kind*/) const override { return range.numel; }
  [[nodiscard]] at::ScalarType type_of(std::size_t /*kind*/) const override {
    return options().state == base::DType::bf16 ? at::kBFloat16 : at::kFloat;
  }
  [[nodiscard]] std::optional<StatePlace> place_of(const RangeLayout& /*range*/, std::size_t /*kind*/, std::int64_t element,
                                                   std::int64_t numel) const override {
    return StatePlace{element, numel};
  }

  void update_segment(std::size_t range, const Segment& segment, double lr, void* stream) override {
    const auto& o = options();
    const auto& mine = states()[range];
    const auto part = kernel_range(bound(range), working(range), segment);
    const double decay = segment.decayed ? o.weight_decay : 0.0;
    if (o.name == "sgd") {
      void* momentum = mine.empty() ? nullptr : element_at(mine[0], segment.begin);
      sgd(on_cuda(), part, momentum, o.state, {.lr = lr, .momentum = o.momentum, .weight_decay = decay}, numbers(), stream);
      return;
    }
    adamw(on_cuda(), part, {element_at(mine[0], segment.begin), element_at(mine[1], segment.begin), o.state},
          {.lr = lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = decay, .decoupled = o.name == "adamw"},
          numbers(), stream);
  }
};

/// adamw8bit: codes, and fp32 moments of small tensors.
class BlockOptimizer final : public CudaOptimizer {
 public:
  explicit BlockOptimizer(const OptimizerOptions& options) : CudaOptimizer(block_states::names(), options) {}
  [[nodiscard]] std::int64_t small_below() const override { return block_states::kSmallBelow; }

 private:
  [[nodiscard]] std::int64_t numel_of(const RangeLayout& range, std::size_t kind) const override {
    return block_states::numel_of(range, kind);
  }
  [[nodiscard]] at::ScalarType type_of(std::size_t kind) const override { return block_states::type_of(kind); }
  [[nodiscard]] std::optional<StatePlace> place_of(const RangeLayout& range, std::size_t kind, std::int64_t element,
                                                   std::int64_t numel) const override {
    return block_states::place_of(range, kind, element, numel);
  }

  void update_segment(std::size_t range, const Segment& segment, double lr, void* stream) override {
    block_states::check_segments(bound(range));
    const auto& o = options();
    const auto& mine = states()[range];
    const auto part = kernel_range(bound(range), working(range), segment);
    const std::int64_t block = block_states::blocks_before(layouts()[range], segment.begin, segment.small);
    if (!segment.small) {
      adam8bit(on_cuda(), part, block_states::codes_at(mine, block), block_states::rule_of(o, lr, segment.decayed),
               fp32_numbers(), stream);
      return;
    }
    const std::int64_t element = block * block_states::kBlock;
    adamw(on_cuda(), part,
          {element_at(mine[block_states::first_small], element), element_at(mine[block_states::second_small], element),
           base::DType::fp32},
          {.lr = lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = segment.decayed ? o.weight_decay : 0.0},
          numbers(), stream);
  }
};

}  // namespace

CudaOptimizer::CudaOptimizer(std::vector<std::string> state_names, const OptimizerOptions& options)
    : StatefulOptimizer(std::move(state_names), options), options_(options) {}

bool CudaOptimizer::set_working(std::vector<at::Tensor> working) {
  SM_CHECK(working.size() == ranges_.size(), "a working copy, or none, for each range");
  for (std::size_t i = 0; i < working.size(); ++i) {
    SM_CHECK(!working[i].defined() ||
                 (working[i].numel() == ranges_[i].parameters.numel() && working[i].device() == numbers_.device()),
             "a working copy has the size of its range and lies beside it");
  }
  working_ = std::move(working);
  return true;
}

void CudaOptimizer::begin_step(const kernels::StepScalars* scalars, void* stream) {
  SM_CHECK(numbers_.defined(), "a step before ranges were bound");
  begin(on_cuda(), scalars, state_at(0), options_.beta1, options_.beta2, stream);
  begin(on_cuda(), scalars, state_at(1), static_cast<double>(static_cast<float>(options_.beta1)),
        static_cast<double>(static_cast<float>(options_.beta2)), stream);
}

void CudaOptimizer::update(std::size_t range, double lr, void* stream) {
  for (const auto& segment : ranges_[range].segments) {
    update_segment(range, segment, lr, stream);
  }
}

std::int64_t CudaOptimizer::steps() const {
  if (!numbers_.defined()) {
    return 0;
  }
  const at::Tensor here = numbers_.cpu();
  kernels::UpdateState state;
  std::memcpy(&state, here.const_data_ptr(), sizeof state);
  return state.steps;
}

void CudaOptimizer::begin_step() {
  throw base::InvariantError("an optimizer of kernels begins a step with the step's scalars");
}

void CudaOptimizer::begin_step_on_device(const kernels::StepScalars* scalars) {
  begin_step(scalars, stream());
}

void CudaOptimizer::update(std::size_t range, double lr, float /*coefficient*/) {
  update(range, lr, stream());
}

void* CudaOptimizer::stream() const {
  SM_CHECK(options_.device != nullptr, "an optimizer of kernels without a device has no stream");
  return options_.device->compute().handle();
}

void CudaOptimizer::take(std::vector<Range> ranges) {
  ranges_ = std::move(ranges);
  working_.assign(ranges_.size(), at::Tensor());
  const at::Device device = ranges_.empty() ? at::Device(at::kCPU) : ranges_.front().parameters.device();
  for (const auto& range : ranges_) {
    SM_CHECK(range.parameters.device() == device && range.gradients.device() == device,
             "parameters and gradients lie on one device");
  }
#ifndef SM_WITH_CUDA
  SM_CHECK(!device.is_cuda(), "memory of a CUDA device in a build without CUDA");
#endif
  if (numbers_.defined()) {
    SM_CHECK(ranges_.empty() || numbers_.device() == device, "ranges moved to another device");
    return;
  }
  if (!ranges_.empty()) {
    const device::MemoryScope scope(device::MemoryCategory::other);  // no state of an element
    numbers_ =
        at::zeros({2 * static_cast<std::int64_t>(sizeof(kernels::UpdateState))}, at::TensorOptions(at::kByte).device(device));
  }
}

void CudaOptimizer::release() {
  ranges_.clear();
  working_.clear();
}

kernels::UpdateState* CudaOptimizer::state_at(std::size_t index) const {
  return static_cast<kernels::UpdateState*>(numbers_.data_ptr()) + index;
}

std::unique_ptr<CudaOptimizer> make_cuda_optimizer(const OptimizerOptions& options) {
  if (options.name == "sgd" || options.name == "adam" || options.name == "adamw") {
    return std::make_unique<ElementwiseOptimizer>(options);
  }
  if (options.name == "adamw8bit") {
    return std::make_unique<BlockOptimizer>(options);
  }
  throw base::ConfigError("optimizer.name = \"" + options.name + "\": accepted are sgd, adam, adamw, adamw8bit");
}

}  // namespace shardmark::optim

#include "optim/cuda_math.hpp"

#include "kernels/move.hpp"
#include "kernels/squares.hpp"
#include "kernels/step_control.hpp"

namespace shardmark::optim {
namespace {

class CudaMath final : public FlatMath {
 public:
  explicit CudaMath(device::Device& device)
      : device_(device), scratch_(device.allocate(static_cast<std::size_t>(kernels::sum_of_squares_scratch_bytes()))) {}

  bool move(Flat into, Flat from, bool add) const override {
    kernels::move_scaled_device({.into = into.data,
                                 .into_type = into.dtype,
                                 .from = from.data,
                                 .from_type = from.dtype,
                                 .count = into.count,
                                 .add = add},
                                stream());
    return true;
  }
  void add(Flat into, Flat from) const override { static_cast<void>(move(into, from, true)); }
  void add_squares(Flat values, kernels::StepScalars* scalars) const override {
    kernels::sum_of_squares_device(values.data, values.dtype, values.count, scalars, scratch_->data(), stream());
  }
  void take_largest(Flat values, kernels::StepScalars* scalars) const override {
    kernels::largest_magnitude_device(values.data, values.dtype, values.count, scalars, stream());
  }
  void add_exact_squares(Flat values, kernels::StepScalars* scalars) const override {
    kernels::exact_sum_of_squares_device(values.data, values.dtype, values.count, scalars, stream());
  }
  void finish_norm(kernels::StepScalars* scalars, NormKind kind, const std::uint64_t* gathered, int parts,
                   double clip_norm) const override {
    kernels::finish_norm_device(
        scalars, {.clip = clip_norm, .gathered = kind == NormKind::exact ? gathered : nullptr, .num_gathered = parts},
        stream());
  }
  [[nodiscard]] const kernels::StepScalars* on_host(const kernels::StepScalars* /*scalars*/) const override { return nullptr; }

 private:
  [[nodiscard]] void* stream() const { return device_.compute().handle(); }

  device::Device& device_;
  std::unique_ptr<device::Memory> scratch_;
};

}  // namespace

std::unique_ptr<FlatMath> make_cuda_math(device::Device& device) {
  return std::make_unique<CudaMath>(device);
}

}  // namespace shardmark::optim

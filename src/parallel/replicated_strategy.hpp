#pragma once
// `single` and `ddp`: parameters, gradients and state whole on every rank, in flat buffers. Gradients are copied into their
// bucket as soon as autograd has them; full buckets are all-reduced in order while backward goes on. `single` is the same
// engine with one rank and no collective.

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "parallel/layout.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {

class ReplicatedStrategy final : public Strategy {
 public:
  ReplicatedStrategy(StrategyOptions options, comm::Communicator& communicator);
  ~ReplicatedStrategy() override;

  void prepare(model::ParameterList& list, const InitialValue& initial) override;
  void begin_step() override;
  void begin_micro_step(std::int64_t index) override;
  void end_micro_step() override;
  [[nodiscard]] GradientSummary finish_gradients() override;
  void update(double lr, float coefficient) override;
  void end_step() override;
  [[nodiscard]] std::vector<NamedTensor> gather_parameters() override;
  [[nodiscard]] std::vector<NamedTensor> gather_gradients() override;
  [[nodiscard]] std::uint64_t parameter_hash() const override;
  [[nodiscard]] std::span<float> raw_parameters() override;
  [[nodiscard]] std::int64_t padding_elements() const override;
  [[nodiscard]] std::int64_t trainable_padding_elements() const override;
  [[nodiscard]] Payload payload_per_step() const override;
  [[nodiscard]] device::CategoryBytes predicted_bytes() const override;

 private:
  struct Hook;
  /// One flat buffer per role; empty tensors where the role does not exist.
  struct Buffers {
    torch::Tensor parameters;
    torch::Tensor gradients;  // what the optimizer reads; accumulates over micro-steps
    torch::Tensor partial;    // one micro-step's gradient, when each micro-step is reduced alone
  };

  void compute_layouts(const std::vector<std::int64_t>& order);
  void allocate();
  void bind_views();
  void install_hooks();
  void gradient_ready(std::size_t index);
  void start_full_buckets();
  void start_bucket(std::size_t bucket);
  void wait_for_buckets();
  void broadcast_buffers();
  void rebuild();
  [[nodiscard]] double gradient_norm(bool& finite) const;
  [[nodiscard]] std::string find_nonfinite() const;
  [[nodiscard]] bool reduces_now() const;
  [[nodiscard]] torch::Tensor& target() { return buffers_.partial.defined() ? buffers_.partial : buffers_.gradients; }
  [[nodiscard]] std::vector<NamedTensor> cut_out(const torch::Tensor& flat, bool trainable_only) const;

  StrategyOptions options_;
  comm::Communicator& communicator_;
  model::ParameterList* list_ = nullptr;
  std::vector<std::int64_t> sizes_;    // by parameter
  std::vector<std::int64_t> offsets_;  // by parameter, in its own flat buffer
  std::vector<std::size_t> bucket_of_;
  Layout trainable_;
  Layout frozen_;
  Buffers buffers_;
  torch::Tensor frozen_values_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<std::unique_ptr<Hook>> hooks_;

  // Of the micro-step under way.
  std::int64_t micro_step_ = 0;
  std::vector<bool> arrived_;
  std::vector<std::int64_t> missing_;  // gradients still due, by bucket
  std::size_t next_bucket_ = 0;
  std::vector<comm::Pending> pending_;
  // The first step's arrival order, until buckets are rebuilt by it.
  std::vector<std::int64_t> arrival_order_;
  bool rebuilt_ = false;
  std::int64_t collective_tag_ = 0;
};

}  // namespace shardmark::parallel

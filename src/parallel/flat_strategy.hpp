#pragma once
// The one engine of all techniques: parameters, gradients and state in flat groups, whole or sharded as the technique's policy
// says. ParameterFlow makes parameters whole where they are used, GradientFlow reduces gradients; here is what a step is.

#include <torch/torch.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/flat_group.hpp"
#include "parallel/gradient_flow.hpp"
#include "parallel/parameter_flow.hpp"
#include "parallel/predict.hpp"
#include "parallel/strategy.hpp"

namespace shardmark::parallel {

class FlatStrategy final : public Strategy {
 public:
  /// Collective where the policy shards: groups of ranks are split off. Throws base::ConfigError.
  FlatStrategy(StrategyOptions options, const Policy& policy, comm::Communicator& communicator);
  ~FlatStrategy() override;

  void prepare(model::ParameterList& list, const InitialValue& initial) override;
  void begin_step() override;
  void begin_micro_step(std::int64_t index) override;
  void end_micro_step() override;
  [[nodiscard]] GradientSummary finish_gradients() override;
  void update(double lr, float coefficient) override;
  void finish_gradients(optim::StepScalars* scalars, double clip_norm) override;
  void update(double lr, optim::StepScalars* scalars) override;
  void end_step() override;
  void begin_evaluation() override;
  void end_evaluation() override;
  [[nodiscard]] std::vector<NamedTensor> gather_parameters() override;
  [[nodiscard]] std::vector<NamedTensor> gather_trainable() override;
  [[nodiscard]] std::vector<NamedTensor> gather_gradients() override;
  [[nodiscard]] std::vector<Replica> replicas() const override;
  void flip_bit(std::int64_t element) override;
  [[nodiscard]] std::int64_t padding_elements() const override;
  [[nodiscard]] std::int64_t trainable_padding_elements() const override;
  [[nodiscard]] Payload payload_per_step() const override;
  [[nodiscard]] device::CategoryBytes predicted_bytes() const override;

 private:
  [[nodiscard]] at::Device where() const;
  /// Calls `use` with the owned gradients of every trainable group.
  template <typename Use>
  void for_each_owned_gradient(const Use& use) const;
  /// `applies`: false where the host knows that nothing is to change.
  void run_update(double lr, float coefficient, bool applies);
  void split_groups();
  /// Groups with parameters; gradients and states follow.
  void build(const std::vector<std::int64_t>& order);
  void allocate_gradients();
  void bind_values(FlatGroup& group);
  [[nodiscard]] optim::RangeLayout range_of(const FlatGroup& group) const;
  void bind_optimizer();
  /// Of the first groups.
  [[nodiscard]] std::vector<NamedTensor> gather_of(std::size_t num_groups);
  void fill_initial_values(const InitialValue& initial);
  void fill_part(FlatGroup& group, const TensorPart& part, const InitialValue& initial);
  /// To where training runs; and what adds statistics over ranks, where the model has such layers.
  void bind_buffers();
  void broadcast_buffers();
  void rebuild();
  void move_into_groups(std::deque<FlatGroup> old);
  [[nodiscard]] bool gather_is_to_fail();
  [[nodiscard]] std::string describe_nonfinite();
  [[nodiscard]] std::vector<GroupPlan> plans() const;
  [[nodiscard]] StepShape shape() const;
  [[nodiscard]] comm::Communicator& gather_communicator() { return gather_ ? *gather_ : communicator_; }
  [[nodiscard]] comm::Communicator& scatter_communicator() { return scatter_ ? *scatter_ : communicator_; }

  StrategyOptions options_;
  Policy policy_;
  comm::Communicator& communicator_;
  // Gathers and sums must not wait for each other: each has a queue of its own.
  std::unique_ptr<comm::Communicator> gather_;
  std::unique_ptr<comm::Communicator> scatter_;
  std::unique_ptr<comm::Communicator> replica_;
  std::unique_ptr<comm::Communicator> part_;
  std::unique_ptr<comm::Communicator> statistics_;  // its sums must not wait behind gradients
  std::unique_ptr<model::SumOverRanks> sums_;
  torch::Tensor moving_buffers_;  // those that change by rank, one after another
  model::ParameterList* list_ = nullptr;
  std::vector<ParameterFacts> facts_;
  std::deque<FlatGroup> groups_;
  std::size_t num_trainable_groups_ = 0;
  std::unique_ptr<optim::FlatMath> math_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  torch::Tensor norm_parts_;  // exact squares of all shards
  std::optional<ParameterFlow> parameters_;
  std::optional<GradientFlow> gradients_;
  bool rebuilt_ = false;
  std::int64_t broadcasts_ = 0;
  std::int64_t step_ = -1;
};

}  // namespace shardmark::parallel

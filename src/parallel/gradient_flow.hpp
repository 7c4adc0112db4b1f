#pragma once
// Takes gradients as autograd finishes them, sums micro-steps, and reduces group after group while backward goes on. Owns no
// parameters; the trainer's step drives it through the strategy.

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/parameter.hpp"
#include "optim/flat_math.hpp"
#include "parallel/flat_group.hpp"
#include "parallel/gradient_hook.hpp"

namespace shardmark::parallel {

class GradientFlow {
 public:
  struct Communicators {
    comm::Communicator* shard = nullptr;    // sums go here; each rank keeps its part where state is sharded
    comm::Communicator* replica = nullptr;  // hybrid: ranks that hold the same part; nullptr: none
    int rank = 0;                           // this one's among all, for messages
  };
  struct Options {
    GradientRules rules;
    comm::SumOrder order = comm::SumOrder::fast;
    base::DType reduce = base::DType::fp32;
    bool overlap = true;
    bool allow_unused = false;
    bool scatter = false;                   // each rank gets the sum of its part only
    bool shards_gradients = false;          // and keeps nothing else
    const optim::FlatMath* math = nullptr;  // lent
  };
  /// A gradient that was not finite before any sum: index of the parameter, -1 = none.
  struct FirstNonfinite {
    std::int64_t parameter = -1;
    std::int64_t micro_step = 0;
  };

  /// `groups`: in the order of reduction, trainable ones first. `unit_arrived` is called when all gradients of a gathered
  /// group are in. Installs hooks on every trainable parameter's value. Everything is lent.
  GradientFlow(std::deque<FlatGroup>& groups, model::ParameterList& list, Communicators communicators, Options options,
               std::function<void(std::int64_t unit)> unit_arrived);

  void begin_micro_step(std::int64_t micro_step);
  /// Starts what is due. Throws base::Error naming trainable parameters without a gradient, unless allowed: perhaps on one rank
  /// alone, and with reductions under way, so that nothing on these communicators may go on.
  void end_micro_step();
  /// Waits until every group's owned_gradient is the sum over ranks and micro-steps. Collective.
  void finish();

  [[nodiscard]] const FirstNonfinite& first_nonfinite() const { return first_nonfinite_; }
  void forget_nonfinite() { first_nonfinite_ = {}; }
  /// Parameters in the order in which their gradients came in the latest micro-step.
  [[nodiscard]] const std::vector<std::int64_t>& arrival_order() const { return arrival_order_; }

 private:
  struct Place {
    std::size_t group = 0;
    std::int64_t offset = 0;
    std::int64_t numel = 0;
  };
  /// A reduction under way.
  struct Flight {
    std::size_t group = 0;
    torch::Tensor received;  // the owned part's sum
    comm::Pending pending;
    bool across_replicas = false;  // the second sum of hybrid has started
  };

  void gradient_ready(std::size_t parameter);
  [[nodiscard]] torch::Tensor& landing(FlatGroup& group);
  void take(const torch::Tensor& gradient, std::size_t parameter, torch::Tensor& target);
  void clear(std::size_t parameter);
  void start_complete_groups();
  void wait_for(Flight& flight);
  void start_across_replicas(Flight& flight);
  void start_reduction(std::size_t group);
  /// Moves flights on in order; `leave` may stay under way.
  void advance(std::size_t leave, bool wait);
  void finish_flight(Flight& flight);
  [[nodiscard]] std::string describe(const FlatGroup& group, bool across_replicas) const;
  [[nodiscard]] bool reduces_now() const { return !options_.rules.no_sync || micro_step_ + 1 == options_.rules.micro_steps; }
  [[nodiscard]] bool adds_to_landing() const { return options_.rules.no_sync && micro_step_ > 0; }
  void report_unused(const std::vector<std::size_t>& unused) const;

  std::deque<FlatGroup>& groups_;
  model::ParameterList& list_;
  Communicators communicators_;
  Options options_;
  std::function<void(std::int64_t)> unit_arrived_;
  bool runs_by_itself_;
  std::vector<Place> places_;  // by parameter
  std::vector<std::unique_ptr<GradientHook>> hooks_;
  std::size_t num_trainable_groups_ = 0;

  std::int64_t micro_step_ = 0;
  std::vector<bool> arrived_;          // by parameter
  std::vector<std::int64_t> missing_;  // gradients still due, by group
  std::size_t next_group_ = 0;
  std::deque<Flight> flights_;
  std::vector<std::int64_t> arrival_order_;
  FirstNonfinite first_nonfinite_;
};

}  // namespace shardmark::parallel

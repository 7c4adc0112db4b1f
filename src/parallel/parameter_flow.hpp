#pragma once
// Makes parameters whole where they are used and takes the copies away again: gathers of units ahead of their use, what stays
// after forward, copies in the type of compute, and the gather of updated parts. Listens to the units' passes.

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/parameter.hpp"
#include "model/unit.hpp"
#include "parallel/flat_group.hpp"
#include "parallel/gather_schedule.hpp"
#include "parallel/predict.hpp"

namespace shardmark::parallel {

class ParameterFlow final : public model::UnitObserver {
 public:
  struct Communicators {
    comm::Communicator* shard = nullptr;  // ranks that share one copy
    comm::Communicator* part = nullptr;   // k of them, for AfterForward::keep_part
    int rank = 0;                         // this one's among all, for messages
  };

  /// Says whether the next gather of this step finds no memory: a planted fault.
  using OutOfMemory = std::function<bool()>;

  /// Takes over `list`'s units: where parameters are gathered, it becomes the list's observer. Everything is lent.
  /// Throws base::ConfigError if the budget cannot hold a unit beside those that stay through a pass, naming them.
  /// `unit_bytes`: gathered_bytes_by_unit.
  ParameterFlow(std::deque<FlatGroup>& groups, model::ParameterList& list, const Policy& policy,
                std::vector<std::int64_t> unit_bytes, Communicators communicators, OutOfMemory out_of_memory);
  ~ParameterFlow() override;

  /// Copies in another type that last a whole step are made.
  void begin_step();
  void begin_pass();
  /// The backward pass is over: whatever is still whole is freed.
  void end_pass();
  /// They are gone until the next step.
  void end_micro_steps();
  /// A gathered group's gradients have all arrived.
  void gradients_arrived(std::int64_t unit);
  /// Whether updates write what forward reads themselves where that is of another type.
  void set_copied_by_update(bool copied) { copied_by_update_ = copied; }
  /// The owned part of a group was updated: copies it to where forward reads it and starts its gather where parts lie on
  /// several ranks. Collective.
  void publish(std::size_t group);
  void finish_publishing();
  /// All elements of one group in the type it rests in, on every rank. Collective.
  [[nodiscard]] torch::Tensor whole(FlatGroup& group);

  void before_forward(std::int64_t unit, bool input_needs_gradient) override;
  void after_forward(std::int64_t unit) override;
  void before_backward(std::int64_t unit) override;
  void after_input_gradient(std::int64_t unit) override;

  [[nodiscard]] const GatherSchedule& schedule() const { return schedule_; }

 private:
  struct Unit {
    std::vector<FlatGroup*> groups;
    std::vector<comm::Pending> pending;  // gathers under way
    bool gathering = false;
    bool in_backward = false;
    bool wants_input_gradient = false;
    bool wants_gradients = false;
    std::vector<torch::Tensor> parts;  // what keep_part left, by group
  };

  /// The gather of an updated group, under way.
  struct Published {
    std::size_t group = 0;
    comm::Pending pending;
  };

  Unit& unit_at(std::int64_t unit) { return units_[static_cast<std::size_t>(unit)]; }
  void enter(std::int64_t unit);
  void start_gather(std::int64_t unit);
  void finish_gather(std::int64_t unit);
  void keep_parts(Unit& unit);
  void release(std::int64_t unit);
  void drop_memory(Unit& unit);
  void leave_backward(std::int64_t unit);
  [[nodiscard]] std::string name_of(std::int64_t unit) const;

  std::deque<FlatGroup>& groups_;
  model::ParameterList& list_;
  Policy policy_;
  Communicators communicators_;
  OutOfMemory out_of_memory_;
  std::vector<std::int64_t> unit_bytes_;
  std::vector<Unit> units_;
  GatherSchedule schedule_;
  std::vector<std::int64_t> to_start_;  // kept, so that a step allocates nothing
  std::vector<std::int64_t> to_drop_;
  std::vector<Published> published_;
  bool copied_by_update_ = false;
};

}  // namespace shardmark::parallel

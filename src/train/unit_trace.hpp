#pragma once
// Makes events of a trace from the passes of a model's units. Stands between the units and whoever else hears of them.

#include <cstdint>
#include <vector>

#include "base/trace.hpp"
#include "model/parameter.hpp"
#include "model/unit.hpp"

namespace shardmark::train {

class UnitTrace final : public model::UnitObserver {
 public:
  /// Becomes the list's observer and passes every call on to the one before, within the event. Both are lent; the one before
  /// must stay the list's for as long.
  UnitTrace(base::Trace& trace, model::ParameterList& list);
  /// The list gets its observer back.
  ~UnitTrace() override;

  void before_forward(std::int64_t unit, bool input_needs_gradient) override;
  void after_forward(std::int64_t unit) override;
  void before_backward(std::int64_t unit) override;
  void after_input_gradient(std::int64_t unit) override;
  /// The backward pass is over: units whose input needs no gradient end here.
  void end_backward();

 private:
  struct Open {
    std::int64_t unit = 0;
    std::int64_t event = -1;
  };

  base::Trace& trace_;
  model::ParameterList& list_;
  model::UnitObserver* inner_;
  std::vector<base::TraceName> forward_names_;
  std::vector<base::TraceName> backward_names_;
  std::vector<Open> forward_;  // a unit encloses those after it
  std::vector<Open> backward_;
};

}  // namespace shardmark::train

#pragma once
// What a model declares: named parameters with shape, first values and unit. A strategy gives them memory; a model never
// allocates or sees a rank. Values are tensors bound by the strategy before the first forward.

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::model {

/// How first values are drawn, element by element, from the stream (seed, parameter name): any slice can be made alone.
struct Init {
  enum class Kind { uniform, normal, constant };
  Kind kind = Kind::constant;
  double a = 0;  // lower bound, mean or value
  double b = 0;  // upper bound or standard deviation

  [[nodiscard]] static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }
  [[nodiscard]] static Init normal(double mean, double deviation) { return {Kind::normal, mean, deviation}; }
  [[nodiscard]] static Init constant(double value) { return {Kind::constant, value, 0}; }
};

/// Fills elements [first, first + out.size()) of a parameter's flattened value.
void fill_initial(std::span<float> out, const Init& init, std::uint64_t seed, std::string_view name, std::int64_t first);

struct Parameter {
  std::string name;  // state name, as in the public implementation
  std::vector<std::int64_t> shape;
  Init init;
  bool trainable = true;
  bool is_adapter = false;  // lies in an adapter's file, not in the checkpoint of the model that it adapts
  std::int64_t unit = 0;    // index into ParameterList::units
  /// Of a tensor of the root: used only behind the units that it encloses (a final norm, a head). Backward meets it first, so
  /// while it trains alone the frozen units before it are not visited. Undeclared, a root's tensor counts as used before them.
  bool behind_units = false;
  /// Another name under which a checkpoint may hold the same values besides (a tied head); "" = none.
  std::string also_named;
  torch::Tensor value;  // a leaf bound by the strategy

  [[nodiscard]] std::int64_t numel() const;
  /// Weight decay "matrices" touches only these.
  [[nodiscard]] bool is_matrix() const { return shape.size() > 1; }
};

/// Non-trained state (running statistics, weights of a frozen normalisation). Made and filled by the model in host memory; the
/// strategy moves it to where training runs, so a model reads `value` anew in each pass.
struct NamedBuffer {
  std::string name;
  torch::Tensor value;
  /// Each rank changes it by its own rows in a pass: before a step and before an evaluation all take rank 0's.
  bool changes_by_rank = false;
};

class UnitObserver;

/// Adds over ranks what each computed of its own rows, where a layer's statistics are those of the whole batch.
class SumOverRanks {
 public:
  SumOverRanks() = default;
  SumOverRanks(const SumOverRanks&) = delete;
  SumOverRanks& operator=(const SumOverRanks&) = delete;
  virtual ~SumOverRanks() = default;

  /// In place, over all ranks; the result has the same bits on each. `values`: contiguous doubles where training runs.
  /// Collective: all ranks call it equally often, in forward and backward, whatever their rows hold.
  virtual void add(const torch::Tensor& values) = 0;
};

/// All parameters of a model in the order of declaration. Addresses stay valid.
class ParameterList {
 public:
  ParameterList() : units_{"root"} {}
  ParameterList(const ParameterList&) = delete;
  ParameterList& operator=(const ParameterList&) = delete;

  /// Declares a parameter in the current unit. Throws InvariantError if the name is taken.
  Parameter& add(std::string name, std::vector<std::int64_t> shape, Init init);
  NamedBuffer& add_buffer(std::string name, torch::Tensor value, bool changes_by_rank = false);
  /// Parameters added from here on belong to a new unit: what a sharding strategy gathers and frees together.
  /// Returns its index.
  std::int64_t begin_unit(std::string name);

  [[nodiscard]] std::deque<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::deque<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] std::deque<NamedBuffer>& buffers() { return buffers_; }
  [[nodiscard]] const std::deque<NamedBuffer>& buffers() const { return buffers_; }
  [[nodiscard]] const std::vector<std::string>& units() const { return units_; }
  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] std::int64_t trainable_numel() const;
  /// The unit that parameters are added to now.
  [[nodiscard]] std::int64_t current_unit() const { return static_cast<std::int64_t>(units_.size()) - 1; }

  /// Who hears of each unit's passes (see unit.hpp); lent, nullptr = nobody.
  void set_observer(UnitObserver* observer) { observer_ = observer; }
  [[nodiscard]] UnitObserver* observer() const { return observer_; }
  /// Activation checkpointing: units that can run again do so in backward instead of keeping their activations.
  void set_checkpointing(bool on) { checkpointing_ = on; }
  [[nodiscard]] bool checkpointing() const { return checkpointing_; }
  /// Declared by a model with layers that add over ranks: a strategy for several ranks then sets sums().
  void declare_sums() { declares_sums_ = true; }
  [[nodiscard]] bool declares_sums() const { return declares_sums_; }
  /// Lent; nullptr: this rank's rows are the whole batch.
  void set_sums(SumOverRanks* sums) { sums_ = sums; }
  [[nodiscard]] SumOverRanks* sums() const { return sums_; }

 private:
  std::deque<Parameter> parameters_;
  std::deque<NamedBuffer> buffers_;
  std::vector<std::string> units_;
  UnitObserver* observer_ = nullptr;
  SumOverRanks* sums_ = nullptr;
  bool checkpointing_ = false;
  bool declares_sums_ = false;
};

}  // namespace shardmark::model

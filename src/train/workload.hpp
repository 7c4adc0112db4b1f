#pragma once
// What a reference workload is to the trainer: a model on one device, rows of data, a loss and the work of a row. No rank and
// no communicator appears here, and the trainer knows no workload by name.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "model/layers.hpp"
#include "model/parameter.hpp"

namespace shardmark::train {

/// Rows of one micro-step, ready on the device. What the tensors are is the workload's own affair.
struct Batch {
  std::vector<torch::Tensor> tensors;
  model::ForwardKey key;
};

/// What a row counts as in throughput. Filler rows (index -1) count nothing.
struct Work {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t padded_tokens = 0;
};

/// Floating-point operations of one optimizer step over the given number of rows, 2 per multiply-add.
struct Flops {
  double model = 0;     // what the mathematics needs
  double hardware = 0;  // what is executed (recomputation included)
};

/// Of evaluated rows: sums, and what cannot be added up. The latter is gathered over ranks in the order of the rows.
struct Evaluation {
  double sum = 0;
  double weight = 0;
  std::vector<double> items = {};
};

class Workload {
 public:
  virtual ~Workload() = default;

  [[nodiscard]] virtual model::ParameterList& parameters() = 0;

  /// Rows of the training set: one epoch.
  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  /// Where the rows come from: a file's path, or "synthetic".
  [[nodiscard]] virtual std::string data_source() const = 0;
  /// Number of loss targets in the rows, fillers excluded: every rank can count the whole global batch without asking.
  [[nodiscard]] virtual double targets(std::span<const std::int64_t> rows) const = 0;
  [[nodiscard]] virtual Work work(std::span<const std::int64_t> rows) const = 0;
  [[nodiscard]] virtual Flops flops(std::int64_t num_rows) const = 0;

  /// Where batches go and the model computes; host memory unless set. Before the first `load`.
  void set_device(at::Device device) { device_ = device; }

  /// Loads rows; -1 is a filler row that must not touch the loss.
  [[nodiscard]] virtual Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) = 0;
  /// What the next call of `load` will be asked for: a workload whose rows take time to make may begin with them beside.
  virtual void announce(std::span<const std::int64_t> rows, const model::ForwardKey& key);
  /// Differentiable fp32 scalar: the sum of the losses of all targets, not normalised.
  [[nodiscard]] virtual torch::Tensor loss_sum(const Batch& batch) = 0;

  /// Held-out rows; 0 if there are none.
  [[nodiscard]] virtual std::int64_t num_eval_rows() const = 0;
  [[nodiscard]] virtual std::string quality_name() const = 0;  // "accuracy", "mse"
  [[nodiscard]] virtual bool higher_is_better() const = 0;
  /// Rows of one call of `evaluate`, which is one pass of the model, whatever the number of ranks: a product of another shape
  /// may round otherwise.
  [[nodiscard]] virtual std::int64_t eval_rows_at_once() const { return 128; }
  [[nodiscard]] virtual Evaluation evaluate(std::span<const std::int64_t> eval_rows) = 0;
  /// The quality of all evaluated rows together; the same on every rank.
  [[nodiscard]] virtual double quality(const Evaluation& all) const { return all.sum / all.weight; }

 protected:
  /// For what `load` fills: of a kind that copies to the device can read while the host goes on.
  [[nodiscard]] at::TensorOptions staging(at::ScalarType type) const {
    return at::TensorOptions().dtype(type).pinned_memory(device_.is_cuda());
  }
  [[nodiscard]] torch::Tensor to_device(const torch::Tensor& tensor) const {
    return device_.is_cpu() ? tensor : tensor.to(device_, /*non_blocking=*/true);
  }

 private:
  at::Device device_ = at::kCPU;
};

inline void Workload::announce(std::span<const std::int64_t> /*rows*/, const model::ForwardKey& /*key*/) {}

/// One line of workloads/table.cpp.
struct WorkloadEntry {
  std::string name;
  std::string summary;
  std::unique_ptr<Workload> (*make)(const config::RunConfig& config);
};

}  // namespace shardmark::train

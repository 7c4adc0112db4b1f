// Evaluations between steps as on a device: there the results of the steps before lie on the device until they are read, and a
// pass for held-out rows gathers parameters that the step before may still be sending.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/parallel/nccl/training.hpp"
#include "tests/support/ratings_writer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "train/proof.hpp"

namespace shardmark::testing {
namespace {

/// Passes everything on and keeps each quality.
class Listening final : public train::Workload {
 public:
  Listening(std::unique_ptr<train::Workload> inner, std::vector<double>& qualities)
      : inner_(std::move(inner)), qualities_(qualities) {}

  [[nodiscard]] model::ParameterList& parameters() override { return inner_->parameters(); }
  [[nodiscard]] std::int64_t num_rows() const override { return inner_->num_rows(); }
  [[nodiscard]] std::string data_source() const override { return inner_->data_source(); }
  [[nodiscard]] double targets(std::span<const std::int64_t> rows) const override { return inner_->targets(rows); }
  [[nodiscard]] train::Work work(std::span<const std::int64_t> rows) const override { return inner_->work(rows); }
  [[nodiscard]] train::Flops flops(std::int64_t num_rows) const override { return inner_->flops(num_rows); }
  [[nodiscard]] train::Batch load(std::span<const std::int64_t> rows, const model::ForwardKey& key) override {
    return inner_->load(rows, key);
  }
  void announce(std::span<const std::int64_t> rows, const model::ForwardKey& key) override { inner_->announce(rows, key); }
  [[nodiscard]] torch::Tensor loss_sum(const train::Batch& batch) override { return inner_->loss_sum(batch); }
  [[nodiscard]] std::int64_t num_eval_rows() const override { return inner_->num_eval_rows(); }
  [[nodiscard]] std::string quality_name() const override { return inner_->quality_name(); }
  [[nodiscard]] bool higher_is_better() const override { return inner_->higher_is_better(); }
  [[nodiscard]] std::int64_t eval_rows_at_once() const override { return inner_->eval_rows_at_once(); }
  [[nodiscard]] train::Evaluation evaluate(std::span<const std::int64_t> rows) override { return inner_->evaluate(rows); }
  [[nodiscard]] double quality(const train::Evaluation& all) const override {
    qualities_.push_back(inner_->quality(all));
    return qualities_.back();
  }

 private:
  std::unique_ptr<train::Workload> inner_;
  std::vector<double>& qualities_;
};

struct Heard {
  train::CellResult result;
  std::vector<double> qualities;  // in the order of evaluations
};

Heard listen(comm::CommunicatorStack& stack, const config::RunConfig& config) {
  Heard heard;
  base::FaultPlan no_faults;
  heard.result = train::run_cell({config,
                                  [&](const config::RunConfig& made) {
                                    return std::make_unique<Listening>(workloads::make_workload(made), heard.qualities);
                                  },
                                  stack, no_faults, test_world().size()});
  return heard;
}

class Evaluated : public ::testing::Test {
 protected:
  Evaluated() {
    set_up_program();
    write_ratings(folder_.file("data.h5"), some_ratings(kRows));
    // Two pieces, so that of three and four ranks some run a pass only because others do.
    write_ratings(folder_.file("eval.h5"), some_ratings(150));
  }
  [[nodiscard]] config::RunConfig config_of(const std::string& technique, int every) const {
    return configured("two-tower-tiny",
                      {"technique.name=" + technique, "evaluate.every=" + std::to_string(every), "optimizer.clip_norm=0",
                       "data.path=" + folder_.file("data.h5"), "data.eval_path=" + folder_.file("eval.h5")});
  }

  static constexpr std::size_t kRows = 300;
  TemporaryFolder folder_;
};

TEST_F(Evaluated, AfterEachStepWithTheQualitiesOfMpi) {
  for (const std::string technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    // Within a block, at its border, and once more after training.
    for (const auto& [every, evaluations] : {std::pair(1, 6U), std::pair(4, 2U)}) {
      const auto config = config_of(technique, every);
      auto over_mpi = comm::make_communicator(test_world(), {});
      const auto expected = listen(over_mpi, config);
      const auto device = device::make_host_device(true);
      auto over_nccl = nccl_stack(*device);
      const auto found = listen(over_nccl, config);
      EXPECT_ON_ALL_RANKS(found.qualities.size() == evaluations) << technique << ": " << found.qualities.size();
      EXPECT_ON_ALL_RANKS(found.qualities == expected.qualities) << technique;
      EXPECT_ON_ALL_RANKS(found.result.losses.size() == 6) << technique << ": " << found.result.losses.size();
      for (const auto& check : train::compare_bits(expected.result, found.result)) {
        EXPECT_ON_ALL_RANKS(check.passed) << technique << ": " << check.name;
      }
      for (const auto& check : found.result.outcome.checks) {
        EXPECT_ON_ALL_RANKS(check.passed) << technique << ": " << check.name << ": " << check.found;
      }
    }
  }
}

TEST_F(Evaluated, TrainingHasTheBitsOfOneWithoutThem) {
  for (const std::string technique : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    const auto train = [&](int every) {
      const auto device = device::make_host_device(true);
      auto over_nccl = nccl_stack(*device);
      return listen(over_nccl, config_of(technique, every)).result;
    };
    for (const auto& check : train::compare_bits(train(0), train(1))) {
      EXPECT_ON_ALL_RANKS(check.passed) << technique << ": " << check.name;
    }
  }
}

TEST_F(Evaluated, ALossThatIsNoNumberEndsTheRunAtTheNextEvaluation) {
  // Results of a block are read when it ends, or before an evaluation in its midst: no quality of void weights is given.
  const auto config = config_of("ddp", 3);
  const auto device = device::make_host_device(true);
  auto over_nccl = nccl_stack(*device);
  base::FaultPlan faults(base::parse_fault("0:backward:2:nan"));
  faults.set_world_rank(test_world().rank());
  std::vector<double> qualities;
  std::string message;
  try {
    static_cast<void>(train::run_cell(
        {config,
         [&](const config::RunConfig& made) { return std::make_unique<Listening>(workloads::make_workload(made), qualities); },
         over_nccl, faults, test_world().size()}));
  } catch (const base::NumericsError& error) {
    message = error.what();
  }
  EXPECT_ON_ALL_RANKS(message.find("step 2:") != std::string::npos) << message;
  EXPECT_ON_ALL_RANKS(qualities.empty());
}

}  // namespace
}  // namespace shardmark::testing

// What a strategy asks of its communicator, whatever the numbers come to: on few ranks an unordered sum may happen to add in
// the order of an ordered one.

#include <memory>
#include <vector>

#include "tests/parallel/parallel/tiny_model.hpp"

namespace shardmark::testing {
namespace {

/// Passes everything on and keeps what was asked for. Borrows the communicator.
class RecordingCommunicator final : public comm::Communicator {
 public:
  explicit RecordingCommunicator(comm::Communicator& inner) : inner_(inner) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] const std::string& name() const override { return inner_.name(); }
  [[nodiscard]] comm::Ticket start(const comm::Collective& collective) override {
    asked.push_back(collective);
    return inner_.start(collective);
  }
  [[nodiscard]] bool test(comm::Ticket ticket) override { return inner_.test(ticket); }
  void wait(comm::Ticket ticket) override { inner_.wait(ticket); }
  void progress() override { inner_.progress(); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    return inner_.split(color, name);
  }

  std::vector<comm::Collective> asked;

 private:
  comm::Communicator& inner_;
};

TEST(Requests, GradientSumsHaveTheOrderThatTheOptionsName) {
  for (const auto order : {comm::SumOrder::ordered, comm::SumOrder::fast}) {
    auto options = tiny_strategy_options();
    options.order = order;
    auto stack = comm::make_communicator(test_world(), {});
    RecordingCommunicator recording(stack.communicator());
    TinyModel model({});
    const auto strategy = parallel::make_strategy("ddp", options, recording);
    strategy->prepare(model.list, nullptr);
    for (std::int64_t step = 0; step < 2; ++step) {
      strategy->begin_step();
      strategy->begin_micro_step(0);
      std::vector<torch::Tensor> values;
      for (const auto& parameter : model.list.parameters()) {
        values.push_back(parameter.value);
      }
      backward(model.loss_sum(values, step, 0, test_world().rank(), test_world().size()), test_world().size(), 1);
      strategy->end_micro_step();
      static_cast<void>(strategy->finish_gradients());
      strategy->update(0.01, 1.0F);
      strategy->end_step();
    }
    std::int64_t sums = 0;
    for (const auto& collective : recording.asked) {
      if (collective.purpose == comm::Purpose::gradient) {
        ++sums;
        EXPECT_EQ(collective.order, order) << comm::name_of(collective.operation) << ", tag " << collective.tag;
        EXPECT_EQ(collective.reduction, comm::Reduction::sum);
      }
    }
    EXPECT_GE(sums, test_world().size() == 1 ? 0 : 8) << "two steps of four buckets or more";
  }
}

}  // namespace
}  // namespace shardmark::testing

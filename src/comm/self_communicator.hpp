#pragma once
// The group of one rank: collectives are copies, complete when start returns.

#include "comm/communicator.hpp"

namespace shardmark::comm {

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name = "world") : name_(std::move(name)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override {}
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  std::string name_;
  Ticket issued_ = 0;
};

}  // namespace shardmark::comm

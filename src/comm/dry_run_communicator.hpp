#pragma once
// Claims to be one rank of many and moves nothing: `plan` drives a strategy over it and reads the counting decorator.
// Buffers are never touched, so they may be null.

#include <functional>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace shardmark::comm {

class DryRunCommunicator final : public Communicator {
 public:
  /// The colour that any rank of this group would pass to `split`: what a dry run cannot ask the others.
  using ColorOf = std::function<int(int rank)>;

  DryRunCommunicator(int rank, int size, std::string name = "world");

  /// Must precede a `split` by that name.
  void set_colors(const std::string& split_name, ColorOf color_of);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override {}
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  int rank_;
  int size_;
  std::string name_;
  Ticket issued_ = 0;
  std::vector<std::pair<std::string, ColorOf>> colors_;
};

}  // namespace shardmark::comm

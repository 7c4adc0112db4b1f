#include "comm/dry_run_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace shardmark::comm {

DryRunCommunicator::DryRunCommunicator(int rank, int size, std::string name)
    : rank_(rank), size_(size), name_(std::move(name)) {
  SM_CHECK(size > 0 && rank >= 0 && rank < size, fmt::format("rank {} of {} does not exist", rank, size));
}

void DryRunCommunicator::set_colors(const std::string& split_name, ColorOf color_of) {
  colors_.emplace_back(split_name, std::move(color_of));
}

Ticket DryRunCommunicator::start(const Collective& collective) {
  check_shape(collective, size_);
  return ++issued_;
}

bool DryRunCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that " + name_ + " never gave");
  return true;
}

void DryRunCommunicator::wait(Ticket ticket) {
  static_cast<void>(test(ticket));
}

std::unique_ptr<Communicator> DryRunCommunicator::split(int color, const std::string& name) {
  const auto entry = std::ranges::find(colors_, name, &std::pair<std::string, ColorOf>::first);
  SM_CHECK(entry != colors_.end(), "a dry run must be told the colors of split \"" + name + "\" by set_colors");
  SM_CHECK(entry->second(rank_) == color, "set_colors of split \"" + name + "\" gives this rank another color");
  int group_rank = 0;
  int group_size = 0;
  for (int other = 0; other < size_; ++other) {
    if (entry->second(other) == color) {
      group_rank += other < rank_ ? 1 : 0;
      ++group_size;
    }
  }
  return std::make_unique<DryRunCommunicator>(group_rank, group_size, name);
}

}  // namespace shardmark::comm

#include "comm/mpi_operation.hpp"

#include <algorithm>

namespace shardmark::comm {

MpiOperation::MpiOperation(MpiGroup& group, const MpiOptions& options)
    : group_(group), algorithms_(group, options), rounds_(static_cast<std::size_t>(std::max(1, options.window))) {}

void MpiOperation::begin(const Collective& collective, std::int64_t sequence) {
  algorithm_ = &algorithms_.choose(collective);
  plan_ = algorithm_->begin(collective, static_cast<int>(sequence % kNumTags) * 2);
  oldest_ = second_ = next_ = 0;
  post_available();
}

void MpiOperation::post_available() {
  while (next_ < plan_.rounds && next_ - oldest_ < plan_.window) {
    Round& round = slot(next_);
    round.index = next_;
    algorithm_->post_first(round);
    ++next_;
  }
}

bool MpiOperation::advance() {
  // Second messages go out in the order of rounds: that is how the receiver tells them apart.
  while (second_ < next_ && group_.test_all(slot(second_).requests)) {
    algorithm_->post_second(slot(second_));
    ++second_;
    while (oldest_ < second_ && group_.test_all(slot(oldest_).requests)) {
      ++oldest_;
    }
    post_available();
  }
  while (oldest_ < second_ && group_.test_all(slot(oldest_).requests)) {
    ++oldest_;
  }
  post_available();
  return oldest_ == plan_.rounds;
}

void MpiOperation::abandon() noexcept {
  for (Round& round : rounds_) {
    withdraw(round.requests);
  }
}

}  // namespace shardmark::comm

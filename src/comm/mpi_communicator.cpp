#include "comm/mpi_communicator.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace shardmark::comm {

world::WaitInfo wait_info(const Collective& collective, std::int64_t sequence) {
  return {.operation = name_of(collective.operation),
          .purpose = name_of(collective.purpose),
          .sequence = sequence,
          .tag = collective.tag,
          .bytes = collective.message_bytes()};
}

MpiCommunicator::MpiCommunicator(CommHandle handle, std::string name, const MpiOptions& options)
    : options_(options), group_(std::move(handle)), name_(std::move(name)) {
  for (int lane = 0; lane < std::max(1, options_.lanes); ++lane) {
    lanes_.emplace_back(group_, options_);
    free_lanes_.insert(free_lanes_.begin(), lane);
  }
}

MpiCommunicator::~MpiCommunicator() {
  if (!queue_.empty()) {
    for (MpiOperation& lane : lanes_) {
      lane.abandon();
    }
  }
}

Ticket MpiCommunicator::start(const Collective& collective) {
  SM_CHECK(!broken_, "communicator " + name_ + " failed before and cannot be used any more");
  check_shape(collective, group_.size());
  queue_.push_back({collective});
  ++issued_;
  ++group_.world().handles().num_lent;
  broken_ = true;  // until its first messages are out
  begin_queued();
  broken_ = false;
  return issued_;
}

void MpiCommunicator::begin_queued() {
  while (!free_lanes_.empty() && num_begun_ < queue_.size()) {
    Entry& entry = queue_[num_begun_];
    entry.lane = free_lanes_.back();
    free_lanes_.pop_back();
    ++num_begun_;
    lanes_[static_cast<std::size_t>(entry.lane)].begin(entry.collective, completed_ + static_cast<Ticket>(num_begun_));
  }
}

void MpiCommunicator::progress() {
  if (queue_.empty()) {
    return;
  }
  SM_CHECK(!broken_, "communicator " + name_ + " failed before and cannot be used any more");
  broken_ = true;  // until this turn has ended well
  for (std::size_t i = 0; i < num_begun_; ++i) {
    Entry& entry = queue_[i];
    if (!entry.complete && lanes_[static_cast<std::size_t>(entry.lane)].advance()) {
      entry.complete = true;
      free_lanes_.push_back(entry.lane);
    }
  }
  while (num_begun_ > 0 && queue_.front().complete) {
    queue_.pop_front();
    --num_begun_;
    --group_.world().handles().num_lent;
    ++completed_;
  }
  begin_queued();
  broken_ = false;
}

bool MpiCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name_ + " never gave");
  if (ticket > completed_) {
    progress();
  }
  return ticket <= completed_;
}

void MpiCommunicator::wait(Ticket ticket) {
  if (test(ticket)) {
    return;
  }
  const double started_s = base::now_s();
  for (std::int64_t turn = 0; !test(ticket); ++turn) {
    try {
      group_.world().poll(turn, started_s, wait_info(queue_.front().collective, completed_ + 1));
    } catch (...) {
      broken_ = true;
      throw;
    }
  }
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, const std::string& name) {
  SM_CHECK(queue_.empty(), "communicator " + name_ + " is split while operations are in flight");
  return std::make_unique<MpiCommunicator>(group_.handle().split(color), name, options_);
}

}  // namespace shardmark::comm

#include "comm/thread_communicator.hpp"

#include <utility>

#include "base/error.hpp"
#include "comm/thread_group.hpp"

namespace shardmark::comm {

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

ThreadCommunicator::~ThreadCommunicator() {
  group_->leave(rank_);
}

int ThreadCommunicator::size() const {
  return group_->size();
}

const std::string& ThreadCommunicator::name() const {
  return group_->name();
}

Ticket ThreadCommunicator::start(const Collective& collective) {
  check_shape(collective, size());
  group_->post(rank_, ++issued_, collective);
  return issued_;
}

bool ThreadCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name() + " never gave");
  return group_->advance(rank_, ticket);
}

void ThreadCommunicator::wait(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name() + " never gave");
  group_->wait(rank_, ticket);
}

void ThreadCommunicator::progress() {
  static_cast<void>(group_->advance(rank_, issued_));
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, const std::string& name) {
  SM_CHECK(color >= 0, "a color is a number from 0 up");
  SM_CHECK(group_->advance(rank_, issued_), "communicator " + this->name() + " is split while operations are in flight");
  int place = 0;
  auto group = group_->split(rank_, color, name, place);
  return std::make_unique<ThreadCommunicator>(std::move(group), place);
}

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, const std::string& name,
                                                                     const ThreadOptions& options) {
  SM_CHECK(size > 0, "a group needs a rank");
  const auto group = std::make_shared<ThreadGroup>(size, name, options);
  std::vector<std::unique_ptr<Communicator>> made;
  for (int rank = 0; rank < size; ++rank) {
    made.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  }
  return made;
}

}  // namespace shardmark::comm

#include "comm/checking_communicator.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/mpi_communicator.hpp"

namespace shardmark::comm {
namespace {

/// Every rank finishes what it agreed on right after a mismatch, so this is soon done unless one dies.
constexpr double kFinish_s = 1.0;

/// The same buffers asked for in another way, for a fault of kind mismatch. Nothing is read or written out of bounds.
void distort(Collective& collective, const std::string& how) {
  if (how == "op") {
    const Buffer buffer = collective.receive;
    const Purpose purpose = collective.purpose;
    const std::int64_t tag = collective.tag;
    const bool was_broadcast = collective.operation == Operation::broadcast;
    collective = {};
    collective.operation = was_broadcast ? Operation::all_reduce : Operation::broadcast;
    collective.receive = buffer;
    collective.purpose = purpose;
    collective.tag = tag;
  } else if (how == "count") {
    collective.operation = Operation::all_reduce;
    collective.send = {};
    collective.receive.count = collective.receive.count > 0 ? collective.receive.count - 1 : 0;
  } else if (how == "dtype") {
    const std::int64_t bytes = collective.receive.bytes();
    collective.operation = Operation::all_reduce;
    collective.send = {};
    collective.receive.dtype = collective.receive.dtype == base::DType::bf16 ? base::DType::uint8 : base::DType::bf16;
    collective.receive.count = bytes / static_cast<std::int64_t>(base::size_of(collective.receive.dtype));
  } else {
    throw base::ConfigError("SHARDMARK_FAULT: mismatch \"" + how + "\" is not one of op, count, dtype, skip");
  }
}

}  // namespace

CheckingCommunicator::CheckingCommunicator(std::unique_ptr<Communicator> inner, CommHandle agreement,
                                           const CheckingOptions& options)
    : inner_(std::move(inner)), agreement_(std::move(agreement)), options_(options) {
  SM_CHECK(agreement_.group().size() == inner_->size() && agreement_.group().rank() == inner_->rank(),
           "the agreement must span the communicator that it checks");
  family_->members.push_back(this);
}

CheckingCommunicator::~CheckingCommunicator() {
  std::erase(family_->members, this);
}

bool CheckingCommunicator::plant(Collective& collective) {
  if (options_.faults == nullptr || collective.purpose != Purpose::gradient) {
    return false;
  }
  const std::int64_t step = *step_ >= 0 ? *step_ : num_gradient_;
  ++num_gradient_;
  options_.faults->reach(base::FaultPhase::comm, step);
  const auto how = options_.faults->due(base::FaultPhase::comm, step, base::FaultKind::mismatch);
  if (!how) {
    return false;
  }
  if (*how == "skip") {
    return true;
  }
  distort(collective, how->empty() ? "op" : *how);
  return false;
}

Ticket CheckingCommunicator::start(const Collective& collective) {
  SM_CHECK(!broken_, "communicator " + name() + " failed before and cannot be used any more");
  check_shape(collective, size());
  Entry entry{collective};
  entry.skipped = plant(entry.collective);
  broken_ = true;  // until the description is out
  if (options_.verify && !entry.skipped) {
    agreement_.start(describe(entry.collective, ++num_described_, agreement_.group().world().rank()));
  }
  entry.place = family_->num_started++;
  queue_.push_back(entry);
  ++issued_;
  broken_ = false;
  progress();
  return issued_;
}

void CheckingCommunicator::forward_agreed() {
  while (num_forwarded_ < queue_.size()) {
    Entry& entry = queue_[num_forwarded_];
    // Ranks see agreements at different times: without this they would start operations of two communicators in unlike orders.
    if (inner_->needs_one_order() && entry.place != family_->num_forwarded) {
      return;
    }
    if (options_.verify && !entry.skipped && !agreement_.next_agreed()) {
      return;
    }
    entry.inner = entry.skipped ? 0 : inner_->start(entry.collective);
    ++num_forwarded_;
    ++family_->num_forwarded;
  }
}

void CheckingCommunicator::retire_complete() {
  while (num_forwarded_ > 0 && (queue_.front().skipped || inner_->test(queue_.front().inner))) {
    if (!queue_.front().skipped) {
      inner_->wait(queue_.front().inner);  // complete: what was kept for it is given back
    }
    queue_.pop_front();
    --num_forwarded_;
    ++completed_;
  }
}

void CheckingCommunicator::progress() {
  if (queue_.empty()) {
    return;
  }
  SM_CHECK(!broken_, "communicator " + name() + " failed before and cannot be used any more");
  broken_ = true;  // until this turn has ended well
  try {
    forward_agreed();
  } catch (const base::MismatchError&) {
    finish_forwarded();
    throw;
  }
  retire_complete();
  broken_ = false;
}

void CheckingCommunicator::progress_others() {
  for (auto* other : family_->members) {
    if (other != this && !other->broken_) {
      other->progress();
    }
  }
}

void CheckingCommunicator::finish_forwarded() noexcept {
  const double until_s = base::now_s() + kFinish_s;
  try {
    while (num_forwarded_ > 0 && base::now_s() < until_s) {
      retire_complete();
    }
  } catch (const std::exception& error) {
    base::log_error(error.what());
  }
}

bool CheckingCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name() + " never gave");
  if (ticket > completed_) {
    progress();
  }
  return ticket <= completed_;
}

void CheckingCommunicator::wait(Ticket ticket) {
  // Not inner_->wait: what the others ask of the agreements of later collectives must go on meanwhile.
  const double started_s = base::now_s();
  for (std::int64_t turn = 0; !test(ticket); ++turn) {
    try {
      progress_others();
      agreement_.group().world().poll(turn, started_s, wait_info(queue_.front().collective, completed_ + 1));
    } catch (...) {
      broken_ = true;
      throw;
    }
  }
}

std::unique_ptr<Communicator> CheckingCommunicator::split(int color, const std::string& name) {
  SM_CHECK(queue_.empty(), "communicator " + this->name() + " is split while operations are in flight");
  auto group = inner_->split(color, name);
  auto checked = std::make_unique<CheckingCommunicator>(std::move(group), agreement_.group().handle().split(color), options_);
  checked->step_ = step_;
  family_->members.push_back(checked.get());
  checked->family_ = family_;
  return checked;
}

}  // namespace shardmark::comm

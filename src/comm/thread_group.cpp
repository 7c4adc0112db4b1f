#include "comm/thread_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "comm/description.hpp"
#include "comm/thread_work.hpp"

namespace shardmark::comm {

ThreadGroup::ThreadGroup(int size, std::string name, const ThreadOptions& options)
    : size_(size),
      name_(std::move(name)),
      options_(options),
      next_(static_cast<std::size_t>(size), 1),
      left_(static_cast<std::size_t>(size), false) {}

void ThreadGroup::fail(std::function<void()> raise) {
  if (!failure_) {
    failure_ = std::move(raise);
  }
  changed_.notify_all();
}

void ThreadGroup::throw_if_failed() const {
  if (failure_) {
    failure_();
  }
}

void ThreadGroup::fail_by_deadline(const std::string& message) {
  fail([message] { throw base::RemoteError(base::ExitCode::deadline, message); });
  throw base::DeadlineError(message);
}

void ThreadGroup::check_equal(const Slot& slot, Ticket ticket) {
  const auto first = describe(slot.asked.front(), ticket, 0);
  for (int rank = 1; rank < size_; ++rank) {
    const auto other = describe(slot.asked[static_cast<std::size_t>(rank)], ticket, 0);
    if (digest_of(first) != digest_of(other)) {
      const auto message = fmt::format("operation {} of group {}: rank 0 started {}, rank {} {}", ticket, name_, text_of(first),
                                       rank, text_of(other));
      fail([message] { throw base::MismatchError(message); });
      return;
    }
  }
}

void ThreadGroup::post(int rank, Ticket ticket, const Collective& collective) {
  const Lock lock(mutex_);
  throw_if_failed();
  while (ticket >= first_ticket_ + static_cast<Ticket>(slots_.size())) {
    slots_.emplace_back(size_);
  }
  Slot& slot = slot_at(ticket);
  slot.asked[static_cast<std::size_t>(rank)] = collective;
  slot.phases[static_cast<std::size_t>(rank)] = 0;
  if (++slot.num_arrived == size_) {
    check_equal(slot, ticket);
    changed_.notify_all();
  }
}

void ThreadGroup::finish_phase(Slot& slot) {
  if (++slot.num_done < size_) {
    return;
  }
  slot.num_done = 0;
  if (++slot.phase == num_phases(slot.asked.front().operation)) {
    slot.complete = true;
  }
  while (!slots_.empty() && slots_.front().complete) {
    slots_.pop_front();
    ++first_ticket_;
  }
  changed_.notify_all();
}

bool ThreadGroup::step(Lock& lock, int rank) {
  throw_if_failed();
  auto& next = next_[static_cast<std::size_t>(rank)];
  if (next >= first_ticket_ + static_cast<Ticket>(slots_.size())) {
    return false;
  }
  Slot& slot = slot_at(next);
  int& mine = slot.phases[static_cast<std::size_t>(rank)];
  if (slot.num_arrived < size_ || mine != slot.phase) {
    return false;
  }
  const int phase = slot.phase;
  ++num_touching_;
  lock.unlock();
  std::string failed;
  try {
    do_work(slot.asked, rank, phase);  // the slot of a deque stays where it is while others come and go
  } catch (const std::exception& error) {
    failed = fmt::format("rank {}: operation of group {}: {}", rank, name_, error.what());
  }
  lock.lock();
  --num_touching_;
  if (!failed.empty()) {
    fail([failed] { throw base::RemoteError(base::ExitCode::failed, failed); });
  }
  if (failure_) {
    changed_.notify_all();
    throw_if_failed();
  }
  ++mine;
  if (mine == num_phases(slot.asked.front().operation)) {
    ++next;
  }
  finish_phase(slot);
  return true;
}

bool ThreadGroup::advance(int rank, Ticket ticket) {
  Lock lock(mutex_);
  while (step(lock, rank)) {
  }
  return complete(ticket);
}

std::string ThreadGroup::silent_ranks(Ticket ticket) {
  std::string ranks;
  if (ticket >= first_ticket_ + static_cast<Ticket>(slots_.size())) {
    return ranks;
  }
  const Slot& slot = slot_at(ticket);
  for (int rank = 0; rank < size_; ++rank) {
    if (slot.phases[static_cast<std::size_t>(rank)] <= (slot.num_arrived < size_ ? -1 : slot.phase)) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return ranks;
}

void ThreadGroup::wait(int rank, Ticket ticket) {
  Lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.deadline_s);
  while (!complete(ticket)) {
    if (step(lock, rank)) {
      continue;
    }
    for (int other = 0; other < size_; ++other) {
      if (left_[static_cast<std::size_t>(other)]) {
        fail_by_leaving(other, ticket);
        throw_if_failed();
      }
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !complete(ticket) && !step(lock, rank)) {
      const Ticket oldest = first_ticket_;
      const auto text = text_of(describe(slot_at(ticket).asked[static_cast<std::size_t>(rank)], ticket, rank));
      fail_by_deadline(fmt::format("rank {}: operation {} of group {} ({}) passed its deadline of {} s; silent: rank {}", rank,
                                   ticket, name_, text, options_.deadline_s, silent_ranks(oldest)));
    }
  }
}

std::shared_ptr<ThreadGroup> ThreadGroup::split(int rank, int color, const std::string& name, int& place) {
  Lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.deadline_s);
  const auto until = [&](const auto& condition, const char* what) {
    if (!changed_.wait_until(lock, deadline, [&] { return condition() || failure_; })) {
      fail_by_deadline(fmt::format("rank {}: split \"{}\" of group {} passed its deadline of {} s: {}", rank, name, name_,
                                   options_.deadline_s, what));
    }
    throw_if_failed();
  };
  // The ranks of the split before this one must have taken their groups.
  until([&] { return split_.num_taken == 0; }, "an earlier split is not over");
  split_.colors.resize(static_cast<std::size_t>(size_), -1);
  split_.colors[static_cast<std::size_t>(rank)] = color;
  if (++split_.num_arrived == size_) {
    for (const int each : split_.colors) {
      if (!split_.groups.contains(each)) {
        const auto members = static_cast<int>(std::ranges::count(split_.colors, each));
        split_.groups[each] = std::make_shared<ThreadGroup>(members, name, options_);
      }
    }
    changed_.notify_all();
  }
  until([&] { return split_.num_arrived == size_; }, "not all ranks came");
  place = static_cast<int>(std::count(split_.colors.begin(), split_.colors.begin() + rank, color));
  const auto group = split_.groups.at(color);
  if (++split_.num_taken == size_) {
    split_ = {};
    changed_.notify_all();
  }
  return group;
}

void ThreadGroup::fail_by_leaving(int rank, Ticket ticket) {
  const auto message = fmt::format("rank {} of group {} left before operation {} was complete", rank, name_, ticket);
  fail([message] { throw base::RemoteError(base::ExitCode::failed, message); });
}

void ThreadGroup::leave(int rank) noexcept {
  Lock lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].phases[static_cast<std::size_t>(rank)] >= 0) {
      fail_by_leaving(rank, first_ticket_ + static_cast<Ticket>(i));
      // Nobody starts a copy any more; those under way may read this rank's buffers.
      changed_.wait(lock, [&] { return num_touching_ == 0; });
      return;
    }
  }
}

}  // namespace shardmark::comm

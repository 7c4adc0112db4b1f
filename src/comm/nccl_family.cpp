#include "comm/nccl_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace shardmark::comm {
namespace {

constexpr double kLongestNap_s = 1.0;
/// A host that comes by this often finds NCCL's errors itself, and its words are better.
constexpr double kOftenEnough_s = 2.0;
/// Once its communicators are aborted, a call that waited for them returns at once.
constexpr double kGrace_s = 10.0;

}  // namespace

NcclFamily::NcclFamily(device::Device& device, double deadline_s)
    : device_(device),
      left_s_(base::now_s()),
      deadline_s_(deadline_s),
      sign_s_(left_s_),
      watcher_([this](const std::stop_token& stopping) { watch(stopping); }) {}

NcclFamily::~NcclFamily() = default;

NcclFamily::Visit::Visit(NcclFamily& family, const std::string& name, double deadline_s)
    : family_(family), lock_(family.enter()) {
  family_.deadline_s_.store(deadline_s);
  family_.left_s_ = base::now_s();  // it came, even if it is sent away below
  if (family_.trouble_) {
    const auto& [code, words] = *family_.trouble_;
    if (code == base::ExitCode::deadline) {
      throw base::DeadlineError(words);
    }
    throw base::Error(code, words);
  }
  SM_CHECK(!family_.broken_, "communicator " + name + " failed before and cannot be used any more");
}

NcclFamily::Visit::~Visit() {
  family_.left_s_ = base::now_s();
}

std::unique_lock<std::recursive_mutex> NcclFamily::enter() {
  give_sign();
  return std::unique_lock(mutex_);
}

void NcclFamily::give_sign() {
  sign_s_.store(base::now_s());
}

void NcclFamily::add(NcclMember& member) {
  const auto lock = enter();
  members_.push_back(&member);
}

void NcclFamily::remove(NcclMember& member) {
  const auto lock = enter();
  std::erase(members_, &member);
}

void NcclFamily::check_async() {
  for (auto* member : members_) {
    member->handle->check_async();
  }
}

void NcclFamily::abort() noexcept {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  for (auto* member : members_) {
    member->handle->abort();
  }
}

bool NcclFamily::broken() {
  const auto lock = enter();
  return broken_;
}

std::optional<NcclFamily::Trouble> NcclFamily::look_at(NcclMember& member, double absent_s) {
  try {
    if (member.newest == nullptr || member.newest->complete()) {
      return std::nullopt;
    }
    if (absent_s > kOftenEnough_s) {
      member.handle->check_async();
    }
  } catch (const base::Error& error) {  // of NCCL or CUDA
    return Trouble{error.code(), error.what()};
  }
  const double deadline_s = deadline_s_.load();
  if (absent_s <= deadline_s) {
    return std::nullopt;
  }
  return Trouble{base::ExitCode::deadline,
                 fmt::format("{}: {} ({}, {} bytes, number {}) did not end for {:.1f} s (comm.deadline_s = {:g}), and the "
                             "host waited for it inside a call of CUDA",
                             member.who, name_of(member.collective.operation), name_of(member.collective.purpose),
                             member.collective.message_bytes(), member.ticket, absent_s, deadline_s)};
}

std::optional<NcclFamily::Trouble> NcclFamily::look() {
  const double absent_s = base::now_s() - left_s_;
  for (auto* member : members_) {
    if (auto trouble = look_at(*member, absent_s)) {
      return trouble;
    }
  }
  return std::nullopt;
}

void NcclFamily::look_from_outside() {
  const double silent_s = base::now_s() - sign_s_.load();
  const double deadline_s = deadline_s_.load();
  if (silent_s > deadline_s + kGrace_s) {
    base::log_error(
        fmt::format("the host did not come back for {:.1f} s from a call of NCCL or CUDA that a communicator made "
                    "(comm.deadline_s = {:g}): this rank ends",
                    silent_s, deadline_s));
    std::_Exit(static_cast<int>(base::ExitCode::deadline));
  }
}

void NcclFamily::watch(const std::stop_token& stopping) {
  device_.enter_thread();
  std::optional<double> ended_s;
  while (!stopping.stop_requested()) {
    {
      std::unique_lock nap(nap_);
      wake_.wait_for(nap, stopping, std::chrono::duration<double>(kLongestNap_s), [] { return false; });
    }
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      look_from_outside();
      continue;
    }
    if (!broken_) {
      trouble_ = look();
      if (trouble_) {
        base::log_error(trouble_->words);
        abort();
        ended_s = base::now_s();
      }
    } else if (ended_s && left_s_ < *ended_s && base::now_s() - *ended_s > kGrace_s) {
      base::log_error("the host does not come back although its communicators were aborted: this rank ends");
      std::_Exit(static_cast<int>(trouble_->code));
    }
  }
}

}  // namespace shardmark::comm

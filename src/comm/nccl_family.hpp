#pragma once
// What the communicators that were split from one share: a failure of one ends them all, and a thread looks after them while
// the host is busy elsewhere, perhaps inside a call of CUDA that a collective which never ends holds back.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/nccl_handle.hpp"
#include "device/device.hpp"

namespace shardmark::comm {

/// One communicator of a family, owned by it.
struct NcclMember {
  std::string who;
  NcclHandle* handle = nullptr;
  device::Event* newest = nullptr;  // of the collective enqueued last; nullptr: none yet
  Collective collective;            // that one
  Ticket ticket = 0;
};

class NcclFamily {
 public:
  /// The device is lent.
  NcclFamily(device::Device& device, double deadline_s);
  NcclFamily(const NcclFamily&) = delete;
  NcclFamily& operator=(const NcclFamily&) = delete;
  ~NcclFamily();

  /// While one lives the host is inside one of the communicators, which look at deadlines and errors themselves, and the thread
  /// leaves them alone: it only ends the process if the host gives no sign for the deadline and more. Visits nest. Throws what
  /// the thread found before, or InvariantError if a member failed before.
  class Visit {
   public:
    Visit(NcclFamily& family, const std::string& name, double deadline_s);
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

   private:
    NcclFamily& family_;
    std::unique_lock<std::recursive_mutex> lock_;
  };

  void add(NcclMember& member);
  void remove(NcclMember& member);
  /// The host is awake: said by all that waits within a visit.
  void give_sign();
  /// Within a visit. Throws NcclError.
  void check_async();
  /// What is under way ends; no visit is possible any more.
  void abort() noexcept;
  [[nodiscard]] bool broken();

 private:
  struct Trouble {
    base::ExitCode code = base::ExitCode::failed;
    std::string words;
  };

  /// Of the host. A sign goes before, so that the thread never sees it inside with an old one.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> enter();
  void watch(const std::stop_token& stopping);
  /// Ends the process if the host, inside, sleeps in a call that no thread may cut short: NCCL's own are not to be aborted
  /// under it. Such a one is CUDA's launch into a queue that is full because a collective never ends.
  void look_from_outside();
  [[nodiscard]] std::optional<Trouble> look();
  [[nodiscard]] std::optional<Trouble> look_at(NcclMember& member, double absent_s);

  device::Device& device_;
  std::recursive_mutex mutex_;  // of all below
  std::vector<NcclMember*> members_;
  bool broken_ = false;
  std::optional<Trouble> trouble_;  // found by the thread
  double left_s_;                   // when the last visit ended, or was refused
  std::atomic<double> deadline_s_;
  std::atomic<double> sign_s_;  // the host's last; without the mutex, like the deadline
  std::mutex nap_;
  std::condition_variable_any wake_;
  std::jthread watcher_;  // last: it uses the others
};

}  // namespace shardmark::comm

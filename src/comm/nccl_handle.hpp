#pragma once
// Owner of one ncclComm_t: made together by the ranks of a group, non-blocking, every call checked and followed until NCCL has
// done what it asks of the host.

#include <nccl.h>

#include <string>

#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace shardmark::comm {

class NcclHandle {
 public:
  /// Collective over `group`, a communicator of host memory: its rank 0 makes the unique id, broadcasts it, then all meet in a
  /// barrier, so that nobody waits inside NCCL for a rank that is not coming, and initialise. `poll` is called while NCCL
  /// works and throws at the deadline. Throws NcclError.
  NcclHandle(Communicator& group, const std::string& who, const device::Poll& poll);
  /// Collective over the ranks of `parent`: those of equal color, in the order of `key`.
  NcclHandle(NcclHandle& parent, int color, int key, const std::string& who, const device::Poll& poll);
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;
  /// Gives the communicator up in peace; aborts it after a failure.
  ~NcclHandle();

  [[nodiscard]] ncclComm_t get() const { return comm_; }
  /// Of a call that enqueues: returns once NCCL has taken it. Throws NcclError naming call and reason; the owner aborts then.
  void check(ncclResult_t result, const char* call, const device::Poll& poll);
  /// Throws NcclError if something failed since, on this rank or another.
  void check_async();
  /// What is under way ends at once, its results are void. Local, from any thread while no other call is made; nothing but
  /// destruction may follow.
  void abort() noexcept;

 private:
  /// Of a constructor: if it throws no destructor runs.
  template <typename Calls>
  void making(const Calls& calls);
  void settle(const char* call, const device::Poll& poll);
  [[noreturn]] void fail(ncclResult_t result, const std::string& call);

  ncclComm_t comm_ = nullptr;
  std::string who_;  // "rank 1 of world on host"
  bool aborted_ = false;
};

}  // namespace shardmark::comm

#pragma once
// A stand-in for NCCL's C interface over host buffers: ranks are processes of one machine that share memory, streams are
// device::HostStream. Linked into test programs, it takes the place of the library's functions. Sums are not added in the order
// of the tree, so that what must be ordered cannot be so by chance.

#include <cstdint>
#include <string>

namespace shardmark::testing {

enum class NcclFault : std::uint8_t {
  none,
  init_hangs,     // initialisation stays in progress for ever
  init_late,      // for a second
  async_error,    // a system error in the n-th collective; the other ranks get a remote error
  silent,         // the n-th collective never ends on this rank, and nobody says why
  leave,          // this process ends at the n-th collective
  other_version,  // the loaded library is another than the header's
  no_id,          // ncclGetUniqueId fails
  device_in_use,  // as NCCL answers when two ranks use one device
  send_refused,   // ncclSend fails
  flips_bit       // the lowest bit of what arrives first in the n-th collective
};

/// Of this rank, for all its communicators; counts from the call on.
void plant_nccl_fault(NcclFault fault, std::int64_t collective = 1);
/// Throws base::ConfigError for an unknown name.
[[nodiscard]] NcclFault nccl_fault_named(const std::string& name);

/// What was called since the program's start.
struct NcclCalls {
  std::int64_t collectives = 0;
  std::int64_t groups = 0;  // outermost ones
  std::int64_t live = 0;    // communicators made and not given up
  std::int64_t aborted = 0;
  int open_groups = 0;  // of the calling thread
};
[[nodiscard]] NcclCalls nccl_calls();

}  // namespace shardmark::testing

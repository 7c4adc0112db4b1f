#include "comm/nccl_handle.hpp"

#include <fmt/format.h>

#include <exception>

#include "base/log.hpp"
#include "comm/nccl_error.hpp"

namespace shardmark::comm {
namespace {

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// What rank 0 tells the others: the id, or that it got none.
struct Invitation {
  std::int64_t result = ncclSuccess;
  ncclUniqueId id{};
};

}  // namespace

NcclHandle::NcclHandle(Communicator& group, const std::string& who, const device::Poll& poll) : who_(who) {
  Invitation invitation;
  if (group.rank() == 0) {
    invitation.result = ncclGetUniqueId(&invitation.id);
  }
  group
      .broadcast(host_buffer(&invitation, static_cast<std::int64_t>(sizeof invitation), base::DType::uint8), 0,
                 Purpose::control, 0)
      .wait();
  if (invitation.result != ncclSuccess) {
    fail(static_cast<ncclResult_t>(invitation.result), "ncclGetUniqueId on rank 0");
  }
  group.barrier().wait();
  ncclConfig_t config = non_blocking();
  making([&] {
    check(ncclCommInitRankConfig(&comm_, group.size(), invitation.id, group.rank(), &config), "ncclCommInitRankConfig", poll);
  });
}

NcclHandle::NcclHandle(NcclHandle& parent, int color, int key, const std::string& who, const device::Poll& poll) : who_(who) {
  ncclConfig_t config = non_blocking();
  making([&] {
    parent.check(ncclCommSplit(parent.get(), color, key, &comm_, &config), "ncclCommSplit", poll);
    settle("ncclCommSplit", poll);
  });
}

template <typename Calls>
void NcclHandle::making(const Calls& calls) {
  try {
    calls();
  } catch (...) {
    abort();
    throw;
  }
}

NcclHandle::~NcclHandle() {
  if (comm_ == nullptr || aborted_) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  if (const ncclResult_t result = ncclCommDestroy(comm_); result != ncclSuccess && result != ncclInProgress) {
    base::log_error(fmt::format("ncclCommDestroy failed on {}: {}", who_, name_of(result)));
  }
}

void NcclHandle::abort() noexcept {
  if (comm_ == nullptr || aborted_) {
    return;
  }
  aborted_ = true;
  if (ncclCommAbort(comm_) != ncclSuccess) {
    base::log_error("ncclCommAbort failed on " + who_);
  }
}

void NcclHandle::check(ncclResult_t result, const char* call, const device::Poll& poll) {
  if (result == ncclInProgress) {
    settle(call, poll);
  } else if (result != ncclSuccess) [[unlikely]] {
    fail(result, call);
  }
}

void NcclHandle::settle(const char* call, const device::Poll& poll) {
  ncclResult_t state = ncclInProgress;
  for (std::int64_t turn = 0; state == ncclInProgress; ++turn) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess) {
      fail(asked, "ncclCommGetAsyncError");
    }
    if (state == ncclInProgress) {
      poll(turn);
    }
  }
  if (state != ncclSuccess) {
    fail(state, call);
  }
}

void NcclHandle::check_async() {
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess) {
    fail(asked, "ncclCommGetAsyncError");
  }
  if (state != ncclSuccess && state != ncclInProgress) [[unlikely]] {
    fail(state, "a collective under way");
  }
}

void NcclHandle::fail(ncclResult_t result, const std::string& call) {
  const char* last = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  const std::string words = last == nullptr || *last == '\0' ? "" : fmt::format("; NCCL's last words: {}", last);
  const char* remedy = result == ncclInvalidUsage
                           ? "; every rank needs a device of its own and the same NCCL (see `shardmark doctor`)"
                       : result == ncclRemoteError ? "; another rank was lost, look at what it said"
                                                   : "; NCCL_DEBUG=WARN says more";
  throw NcclError(result, fmt::format("{} failed on {}: {} ({}){}{}", call, who_, name_of(result), ncclGetErrorString(result),
                                      words, remedy));
}

}  // namespace shardmark::comm

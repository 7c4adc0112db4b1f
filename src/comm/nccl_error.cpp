#include "comm/nccl_error.hpp"

#include <fmt/format.h>

namespace shardmark::comm {

base::ExitCode NcclError::code_of(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError: return base::ExitCode::deadline;
    case ncclInvalidUsage: return base::ExitCode::environment;
    default: return base::ExitCode::failed;
  }
}

std::string name_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "ncclSuccess";
    case ncclUnhandledCudaError: return "ncclUnhandledCudaError";
    case ncclSystemError: return "ncclSystemError";
    case ncclInternalError: return "ncclInternalError";
    case ncclInvalidArgument: return "ncclInvalidArgument";
    case ncclInvalidUsage: return "ncclInvalidUsage";
    case ncclRemoteError: return "ncclRemoteError";
    case ncclInProgress: return "ncclInProgress";
    default: return fmt::format("NCCL result {}", static_cast<int>(result));
  }
}

}  // namespace shardmark::comm

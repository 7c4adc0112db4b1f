#pragma once
// A failed NCCL call, and the names of its codes.

#include <nccl.h>

#include <string>

#include "base/error.hpp"

namespace shardmark::comm {

/// Carries the call, the code's name, NCCL's last words and who met it. Exit 7 if another rank was lost, 5 if NCCL was used as
/// it does not allow (two ranks on one device), else 1.
class NcclError : public base::Error {
 public:
  NcclError(ncclResult_t result, const std::string& message) : Error(code_of(result), message) {}

 private:
  static base::ExitCode code_of(ncclResult_t result);
};

/// "ncclRemoteError"
[[nodiscard]] std::string name_of(ncclResult_t result);

}  // namespace shardmark::comm

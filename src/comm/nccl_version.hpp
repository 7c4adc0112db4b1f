#pragma once
// Which NCCL this program was compiled against and which one it runs with. NCCL promises nothing between two versions: structs
// of one are read by the other.

#include <string>

namespace shardmark::comm {

struct NcclVersions {
  int built = 0;        // NCCL_VERSION_CODE of the header, as 23007; 0: this build has no NCCL
  int loaded = 0;       // what the loaded library says of itself; 0: none is loaded, or it does not answer
  std::string header;   // path of the header compiled against
  std::string library;  // path of the library loaded
};

[[nodiscard]] NcclVersions nccl_versions();

/// "2.30.7" of 23007, "2.8.4" of 2804 (NCCL up to 2.8 had another code); "" of 0.
[[nodiscard]] std::string nccl_version_text(int code);

/// What is wrong, with both versions, both paths and the remedy; "" if nothing is. Two zeros are right: nothing to mix.
[[nodiscard]] std::string nccl_mismatch(const NcclVersions& versions);

/// Before the first communicator. Local. Throws EnvironmentError (exit 5) if the versions differ.
void check_nccl_version();

}  // namespace shardmark::comm

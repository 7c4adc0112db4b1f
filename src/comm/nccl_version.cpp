#include "comm/nccl_version.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

#ifdef SM_WITH_CUDA
#include <dlfcn.h>
#include <nccl.h>
#endif

namespace shardmark::comm {

NcclVersions nccl_versions() {
  NcclVersions versions;
#ifdef SM_WITH_CUDA
  versions.built = NCCL_VERSION_CODE;
  versions.header = SM_NCCL_HEADER;
  if (ncclGetVersion(&versions.loaded) != ncclSuccess) {
    versions.loaded = 0;
  }
  // By name: the address that this program has of the function may be a stub of its own.
  Dl_info place{};
  if (dladdr(dlsym(RTLD_DEFAULT, "ncclGetVersion"), &place) != 0 && place.dli_fname != nullptr) {
    versions.library = place.dli_fname;
  }
#endif
  return versions;
}

std::string nccl_version_text(int code) {
  if (code <= 0) {
    return "";
  }
  const int major = code < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

std::string nccl_mismatch(const NcclVersions& versions) {
  if (versions.built == versions.loaded) {
    return "";
  }
  const auto name = [](int code) { return code == 0 ? std::string("none") : nccl_version_text(code); };
  return fmt::format(
      "compiled against NCCL {} ({}), loaded is {} ({}): load the one it was compiled with (look into LD_PRELOAD, "
      "LD_LIBRARY_PATH and loaded modules), or build shardmark anew",
      name(versions.built), versions.header, name(versions.loaded), versions.library);
}

void check_nccl_version() {
  if (const auto text = nccl_mismatch(nccl_versions()); !text.empty()) {
    throw base::EnvironmentError(text);
  }
}

}  // namespace shardmark::comm

#include "record/hdf5_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "record/hdf5_handle.hpp"

namespace shardmark::record {

Hdf5Library hdf5_library() {
  prepare_hdf5();
  Hdf5Library found;
  found.built = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  found.loaded = H5get_libversion(&major, &minor, &release) < 0 ? "unknown" : fmt::format("{}.{}.{}", major, minor, release);
#ifdef H5_HAVE_PARALLEL
  found.built_parallel = true;
#endif
  found.loaded_parallel = dlsym(RTLD_DEFAULT, "H5Pset_fapl_mpio") != nullptr;
  return found;
}

}  // namespace shardmark::record

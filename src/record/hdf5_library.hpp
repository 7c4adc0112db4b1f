#pragma once
// Which HDF5 this program was compiled against and which one is loaded: they may differ where LD_LIBRARY_PATH decides.

#include <string>

namespace shardmark::record {

struct Hdf5Library {
  std::string built;  // "1.10.8"
  std::string loaded;
  bool built_parallel = false;
  bool loaded_parallel = false;
};
[[nodiscard]] Hdf5Library hdf5_library();

}  // namespace shardmark::record

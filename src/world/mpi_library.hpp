#pragma once
// Which MPI this program was compiled against and which one is loaded.

#include <string>

namespace shardmark::world {

struct MpiLibrary {
  std::string built;   // "Open MPI 4.1.4"; "MPI 3.1" where the header names no implementation
  std::string loaded;  // in the same form
};
/// May be called before MPI_Init and after MPI_Finalize.
[[nodiscard]] MpiLibrary mpi_library();

/// The implementation and its version in what MPI_Get_library_version says, e.g. "Open MPI v4.1.4, package: ..."; the first
/// line as it is if the implementation is not known.
[[nodiscard]] std::string short_mpi_version(const std::string& library_text);

}  // namespace shardmark::world

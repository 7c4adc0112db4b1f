#include "world/mpi_library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "world/handles.hpp"

namespace shardmark::world {
namespace {

std::string built_version() {
#if defined(OMPI_MAJOR_VERSION)
  return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(I_MPI_VERSION)
  return fmt::format("Intel MPI {}", I_MPI_VERSION);
#elif defined(MPICH_VERSION)
  return fmt::format("MPICH {}", MPICH_VERSION);
#else
  return fmt::format("MPI {}.{}", MPI_VERSION, MPI_SUBVERSION);
#endif
}

}  // namespace

std::string short_mpi_version(const std::string& library_text) {
  constexpr std::array<std::string_view, 5> names{"Open MPI", "Intel(R) MPI", "MVAPICH2", "MVAPICH", "MPICH"};
  for (const auto name : names) {
    const auto at = library_text.find(name);
    const auto digit = at == std::string::npos ? at : library_text.find_first_of("0123456789", at + name.size());
    if (digit != std::string::npos) {
      const auto end = library_text.find_first_not_of("0123456789.abrcp-", digit);
      return fmt::format("{} {}", name == "Intel(R) MPI" ? "Intel MPI" : name,
                         library_text.substr(digit, end == std::string::npos ? end : end - digit));
    }
  }
  return library_text.substr(0, library_text.find_first_of(",\n"));
}

MpiLibrary mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MpiLibrary found{built_version(), "unknown"};
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) {
    return found;
  }
  found.loaded = short_mpi_version(text.data());
#if !defined(OMPI_MAJOR_VERSION) && !defined(MPICH_VERSION) && !defined(I_MPI_VERSION)
  int version = 0;
  int subversion = 0;
  if (MPI_Get_version(&version, &subversion) == MPI_SUCCESS) {
    found.loaded = fmt::format("MPI {}.{}", version, subversion);
  }
#endif
  return found;
}

}  // namespace shardmark::world

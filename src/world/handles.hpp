#pragma once
// MPI's side of a World, for world and comm only: the duplicated communicators, and the one check of return codes.

#define OMPI_SKIP_MPICXX 1  // the C++ bindings were removed from MPI; their headers clash with our warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <string>

#include "world/world.hpp"

namespace shardmark::world {

/// Throws MpiError with the call's name, the error's class and text, rank and host, unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call, int world_rank, const std::string& host);

struct World::Handles {
  MPI_Comm control = MPI_COMM_NULL;  // World's own exchanges
  MPI_Comm notices = MPI_COMM_NULL;  // failure and waiting reports, point to point
  MPI_Comm compute = MPI_COMM_NULL;  // parent of the communicators that src/comm duplicates
  int rank = 0;
  int size = 1;
  std::string host;
  /// Operations in flight, whose buffers MPI may still read and write. After a failure unwinding frees those buffers, and
  /// every MPI call that moves messages on could then write into them: with any in flight, none is made.
  std::int64_t num_lent = 0;

  void check(int code, const char* call) const {
    if (code != MPI_SUCCESS) [[unlikely]] {
      check_mpi(code, call, rank, host);
    }
  }
};

}  // namespace shardmark::world

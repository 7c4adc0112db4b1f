#pragma once
// Who tells what all ranks see alike where no messages pass between them: before MPI has started, or where it cannot.

namespace shardmark::app {

/// Whether this process is the one that tells: rank 0 by the launcher's variables, or the only one. Others come back after a
/// moment that leaves it time to print, since a rank that ends without MPI_Finalize makes mpirun end all.
[[nodiscard]] bool speaks_for_all();

/// Between results on standard output and the message that speaks of them. A launcher carries the two streams by ways of their
/// own (Open MPI: a pseudo-terminal and a pipe) and nobody tells when it has read them, so it is left a moment; then with 2>&1
/// the message follows. Nothing without a launcher, where flushing is enough, and messages do that.
void let_results_pass();

}  // namespace shardmark::app

#pragma once
// The MPI session of a run: start, identity, node-local ranks, small blocking exchanges of control data, failure notices,
// abort, finish. The communicators of src/comm stand on it. Nothing static owns MPI state: `run` owns one World.

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace shardmark::world {

/// An MPI call failed: carries call, class, text, rank and host (exit 1).
class MpiError : public base::Error {
 public:
  explicit MpiError(const std::string& message) : Error(base::ExitCode::failed, message) {}
};

/// A signal asked this rank to stop while it waited (exit 1); see World::set_interrupt_flag.
class Interrupted : public base::Error {
 public:
  explicit Interrupted(const std::string& message) : Error(base::ExitCode::failed, message) {}
};

struct WorldOptions {
  double init_deadline_s = 600;
  double deadline_s = 600;
};

/// What this rank does while it waits, for the report at a deadline.
struct WaitInfo {
  std::string_view operation;  // "all_reduce", "gather", ...
  std::string_view purpose;
  std::int64_t sequence = 0;
  std::int64_t tag = 0;
  std::int64_t bytes = 0;
};

/// Refuses, before MPI_Init, a start that would become N singletons: no launcher variable (OMPI_COMM_WORLD_SIZE, PMIX_RANK,
/// PMI_RANK) but SLURM_NTASKS > 1, or fewer SLURM_NTASKS than SLURM_NTASKS_PER_NODE, which contradict each other.
/// Pure function of the environment. Throws EnvironmentError (exit 5) with the remedy.
void check_launcher();

/// The number of ranks that the launcher set up, from its variables before MPI_Init: under mpirun OMPI_COMM_WORLD_SIZE,
/// under srun SLURM_STEP_NUM_TASKS, under others PMI_SIZE.
struct LauncherSize {
  std::string variable;  // "" if no launcher said anything
  int size = 0;
};
[[nodiscard]] LauncherSize launcher_size();

class Notices;

class World {
 public:
  /// Initialises MPI (errors are returned, not fatal), duplicates the communicator, finds node-local ranks, and compares the
  /// launcher's size (launcher_size) with MPI's. Collective.
  /// Throws EnvironmentError, MpiError, DeadlineError.
  explicit World(const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// Finalises MPI, unless an exception unwinds or a failure was reported: then the others would hang, so `abort` ends it.
  ~World();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int node() const;  // index of this rank's node, by first rank on it
  [[nodiscard]] int num_nodes() const;
  [[nodiscard]] int node_rank() const;  // rank among those of the node
  [[nodiscard]] int node_size() const;
  [[nodiscard]] const std::string& host() const;
  [[nodiscard]] const std::string& host_of(int world_rank) const;
  /// More ranks on some node than cores this process may use there.
  [[nodiscard]] bool oversubscribed() const;

  /// Blocking exchanges of control data; all ranks call with the same sequence. Deadlines and notices as in `poll`.
  void barrier();
  /// Every rank's bytes on rank 0, in rank order; empty elsewhere. Lengths may differ.
  [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);
  /// Rank 0's bytes everywhere.
  [[nodiscard]] std::vector<std::byte> broadcast(std::span<const std::byte> from_rank_0);

  /// All ranks compare a named text (version, configuration hash, seed): differing ones throw MismatchError (exit 9) on
  /// every rank, naming the ranks and both values.
  void agree(std::string_view what, std::string_view value);

  /// Runs a set-up step that may fail on one rank: all ranks throw or none. The failing rank throws its own exception, the
  /// others RemoteError with that rank, its message and code.
  void collectively(std::string_view what, const std::function<void()>& step);

  /// A non-zero flag makes the next poll throw Interrupted; set it from a signal handler. nullptr: none.
  void set_interrupt_flag(const volatile std::sig_atomic_t* flag);

  /// Called from every wait loop. Spins, yields when oversubscribed; throws RemoteError if another rank reported a failure,
  /// DeadlineError past `started_s + deadline_s()` after exchanging reports, naming operation, sequence and silent ranks.
  /// `turn` counts the loop's turns: the clock and the notices are looked at every so many of them only.
  void poll(std::int64_t turn, double started_s, const WaitInfo& info);
  [[nodiscard]] double deadline_s() const;
  void set_deadline_s(double seconds);

  /// Tells every other rank that this one failed, without waiting for them; they throw RemoteError from their next poll.
  void report_failure(base::ExitCode code, const std::string& message) noexcept;
  /// Ends the job with the code. Rank 0 aborts at once (its record is closed); others give it two seconds first.
  [[noreturn]] void abort(base::ExitCode code) noexcept;

  /// True once a wait failed or a failure was reported: nothing collective may follow, and MPI is not finalised.
  [[nodiscard]] bool failed() const;

  /// The duplicated communicators as MPI_Comm, opaque here so that mpi.h stays in world and comm: world/handles.hpp.
  struct Handles;
  [[nodiscard]] Handles& handles();

 private:
  struct Place;
  /// Spins until the request is complete; see poll.
  void wait_for(void* request, std::string_view operation, std::int64_t bytes);
  void find_place(const LauncherSize& launcher);

  std::unique_ptr<Handles> handles_;
  std::unique_ptr<Place> place_;
  std::unique_ptr<Notices> notices_;
  double deadline_s_;
  std::int64_t sequence_ = 0;
  const volatile std::sig_atomic_t* interrupt_ = nullptr;
  int exceptions_at_start_;
  bool failed_ = false;
};

/// Versions for the record: MPI standard and library.
[[nodiscard]] std::string mpi_version_text();

}  // namespace shardmark::world

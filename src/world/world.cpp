#include "world/world.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "world/deadline_guard.hpp"
#include "world/handles.hpp"
#include "world/notices.hpp"

namespace shardmark::world {
namespace {

/// Turns of a wait loop between looks at the clock and at the notices: a look costs as much as several turns. An
/// oversubscribed turn may take a time slice, so there a look comes sooner.
constexpr std::int64_t kTurnsPerLook = 512;
constexpr std::int64_t kTurnsPerLookYielding = 16;
/// How long ranks other than 0 leave rank 0 to close its record before they end the job.
constexpr double kAbortGrace_s = 2.0;
/// How long a rank that failed helps its notices out.
constexpr double kSend_s = 0.1;
constexpr double kFinalizeDeadline_s = 60.0;
constexpr std::size_t kMaxCpus = 8192;

using CpuMask = std::array<std::uint64_t, kMaxCpus / 64>;

CpuMask own_cpus() {
  CpuMask mask{};
  if (sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    throw base::EnvironmentError(fmt::format("sched_getaffinity failed: {}", std::strerror(errno)));
  }
  return mask;
}

std::string own_host() {
  std::array<char, 64> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown";
  }
  return name.data();
}

void make_communicators(World::Handles& handles) {
  for (MPI_Comm* communicator : {&handles.control, &handles.notices, &handles.compute}) {
    handles.check(MPI_Comm_dup(MPI_COMM_WORLD, communicator), "MPI_Comm_dup");
    handles.check(MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
}

}  // namespace

void check_mpi(int code, const char* call, int world_rank, const std::string& host) {
  if (code == MPI_SUCCESS) {
    return;
  }
  int error_class = MPI_ERR_UNKNOWN;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_class(code, &error_class) != MPI_SUCCESS || MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    throw MpiError(
        fmt::format("{} failed on rank {} on {} with code {}, which MPI does not know", call, world_rank, host, code));
  }
  throw MpiError(fmt::format("{} failed on rank {} on {}: {} (class {}, code {})", call, world_rank, host, text.data(),
                             error_class, code));
}

/// Where this rank sits among the others.
struct World::Place {
  int node = 0;
  int num_nodes = 1;
  int node_rank = 0;
  int node_size = 1;
  bool oversubscribed = false;
  std::vector<std::string> hosts;  // of every rank
};

World::World(const WorldOptions& options)
    : handles_(std::make_unique<Handles>()),
      place_(std::make_unique<Place>()),
      deadline_s_(options.init_deadline_s),
      exceptions_at_start_(std::uncaught_exceptions()) {
  const LauncherSize launcher = launcher_size();  // before MPI_Init, which sets variables of its own
  handles_->host = own_host();
  {
    const DeadlineGuard guard("MPI_Init", options.init_deadline_s);
    int provided = MPI_THREAD_SINGLE;
    handles_->check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    // On a device autograd computes backward, and looks for failures meanwhile, in a thread of its own.
    if (provided < MPI_THREAD_SERIALIZED) {
      throw base::EnvironmentError(fmt::format(
          "this MPI gives thread level {}, MPI_THREAD_SERIALIZED is needed: use an MPI built with threads", provided));
    }
    handles_->check(MPI_Comm_rank(MPI_COMM_WORLD, &handles_->rank), "MPI_Comm_rank");
    handles_->check(MPI_Comm_size(MPI_COMM_WORLD, &handles_->size), "MPI_Comm_size");
    base::set_log_identity(handles_->rank, handles_->size, handles_->host);
    make_communicators(*handles_);
    notices_ = std::make_unique<Notices>(*handles_);
    find_place(launcher);
  }
  barrier();
  deadline_s_ = options.deadline_s;
}

void World::find_place(const LauncherSize& launcher) {
  if (!launcher.variable.empty() && launcher.size != size()) {
    throw base::EnvironmentError(
        fmt::format("{} = {}, but MPI sees {} rank{}: this program's MPI does not belong to the launcher. Start it with the "
                    "mpirun of the MPI it was built with, or with srun --mpi=pmix",
                    launcher.variable, launcher.size, size(), size() == 1 ? "" : "s"));
  }
  const CpuMask mask = own_cpus();
  MPI_Comm node = MPI_COMM_NULL;
  handles_->check(MPI_Comm_split_type(handles_->control, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
                  "MPI_Comm_split_type");
  handles_->check(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  handles_->check(MPI_Comm_rank(node, &place_->node_rank), "MPI_Comm_rank");
  handles_->check(MPI_Comm_size(node, &place_->node_size), "MPI_Comm_size");
  // Blocking calls are allowed here: the guard of the start is watching.
  CpuMask all{};
  handles_->check(MPI_Allreduce(mask.data(), all.data(), static_cast<int>(all.size()), MPI_UINT64_T, MPI_BOR, node),
                  "MPI_Allreduce");
  int first_rank = rank();
  handles_->check(MPI_Bcast(&first_rank, 1, MPI_INT, 0, node), "MPI_Bcast");
  handles_->check(MPI_Comm_free(&node), "MPI_Comm_free");
  int cpus = 0;
  for (const std::uint64_t word : all) {
    cpus += __builtin_popcountll(word);
  }
  struct Facts {
    int first_rank;
    int crowded;
    char host[64];
  };
  Facts mine{first_rank, place_->node_size > cpus ? 1 : 0, {}};
  std::strncpy(mine.host, handles_->host.c_str(), sizeof mine.host - 1);
  std::vector<Facts> facts(static_cast<std::size_t>(size()));
  handles_->check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, facts.data(), sizeof mine, MPI_BYTE, handles_->control),
                  "MPI_Allgather");
  std::vector<int> leaders;
  for (const Facts& rank_facts : facts) {
    place_->hosts.emplace_back(rank_facts.host);
    place_->oversubscribed = place_->oversubscribed || rank_facts.crowded != 0;
    leaders.push_back(rank_facts.first_rank);
  }
  std::ranges::sort(leaders);
  leaders.erase(std::ranges::unique(leaders).begin(), leaders.end());
  place_->num_nodes = static_cast<int>(leaders.size());
  place_->node = static_cast<int>(std::ranges::lower_bound(leaders, first_rank) - leaders.begin());
}

World::~World() {
  if (failed_ || std::uncaught_exceptions() > exceptions_at_start_) {
    return;  // the other ranks may never come: MPI_Finalize would wait for them
  }
  const DeadlineGuard guard("MPI_Finalize", kFinalizeDeadline_s);
  for (MPI_Comm* communicator : {&handles_->control, &handles_->notices, &handles_->compute}) {
    if (MPI_Comm_free(communicator) != MPI_SUCCESS) {
      base::log_error("MPI_Comm_free failed before MPI_Finalize");
    }
  }
  if (MPI_Finalize() != MPI_SUCCESS) {
    base::log_error("MPI_Finalize failed");
  }
}

int World::rank() const {
  return handles_->rank;
}
int World::size() const {
  return handles_->size;
}
int World::node() const {
  return place_->node;
}
int World::num_nodes() const {
  return place_->num_nodes;
}
int World::node_rank() const {
  return place_->node_rank;
}
int World::node_size() const {
  return place_->node_size;
}
const std::string& World::host() const {
  return handles_->host;
}
const std::string& World::host_of(int world_rank) const {
  return place_->hosts.at(static_cast<std::size_t>(world_rank));
}
bool World::oversubscribed() const {
  return place_->oversubscribed;
}
double World::deadline_s() const {
  return deadline_s_;
}
void World::set_deadline_s(double seconds) {
  deadline_s_ = seconds;
}
bool World::failed() const {
  return failed_;
}
World::Handles& World::handles() {
  return *handles_;
}
void World::set_interrupt_flag(const volatile std::sig_atomic_t* flag) {
  interrupt_ = flag;
}

void World::poll(std::int64_t turn, double started_s, const WaitInfo& info) {
  if (interrupt_ != nullptr && *interrupt_ != 0) [[unlikely]] {
    failed_ = true;
    throw Interrupted(
        fmt::format("stopped by signal {} while waiting in {}", static_cast<int>(*interrupt_), notices_->text_of(info)));
  }
  const bool yielding = place_->oversubscribed;
  if (yielding) {
    sched_yield();
  }
  const std::int64_t mask = (yielding ? kTurnsPerLookYielding : kTurnsPerLook) - 1;
  if ((turn & mask) != mask) {
    return;
  }
  const double waited_s = base::now_s() - started_s;
  const auto notice = notices_->receive();
  if (!notice && waited_s <= deadline_s_) {
    return;
  }
  failed_ = true;
  if (notice && notice->kind == Notice::Kind::failure) {
    Notices::raise(*notice);
  }
  notices_->raise_deadline(info, waited_s, deadline_s_, notice, place_->hosts);
}

void World::report_failure(base::ExitCode code, const std::string& message) noexcept {
  failed_ = true;
  try {
    notices_->send_failure(code, message);
    const double until_s = base::now_s() + kSend_s;
    while (handles_->num_lent == 0 && !notices_->progress() && base::now_s() < until_s) {
    }
  } catch (const std::exception& error) {
    base::log_error(fmt::format("could not tell the other ranks of a failure: {}", error.what()));
  }
}

void World::abort(base::ExitCode code) noexcept {
  failed_ = true;
  if (rank() != 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kAbortGrace_s));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  _exit(static_cast<int>(code));
}

std::string mpi_version_text() {
  int version = 0;
  int subversion = 0;
  int length = 0;
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  check_mpi(MPI_Get_version(&version, &subversion), "MPI_Get_version", 0, own_host());
  check_mpi(MPI_Get_library_version(library.data(), &length), "MPI_Get_library_version", 0, own_host());
  std::string first(library.data());
  first.resize(std::min(first.size(), first.find_first_of(",\n")));
  return fmt::format("MPI {}.{}, {}", version, subversion, first);
}

}  // namespace shardmark::world

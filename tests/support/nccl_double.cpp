#include "tests/support/nccl_double.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "device/host_device.hpp"
#include "kernels/element.hpp"
#include "tests/support/nccl_double_log.hpp"

namespace shardmark::testing {
namespace {

constexpr int kMaxRanks = 8;
constexpr int kMaxSplits = 64;
constexpr std::size_t kChunk = 64 * 1024;

/// From one rank to another; one writes, one reads.
struct Channel {
  std::atomic<std::uint64_t> written;  // chunks
  std::atomic<std::uint64_t> read;
  std::array<std::byte, kChunk> data;
};

/// What the ranks of one communicator share; zeroed when made.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> failed;  // a rank's number + 1
  std::array<std::atomic<int>, kMaxSplits> split_arrived;
  std::array<std::array<int, kMaxRanks>, kMaxSplits> colors;
  std::array<std::array<int, kMaxRanks>, kMaxSplits> keys;
  std::array<std::array<Channel, kMaxRanks>, kMaxRanks> channels;  // [from][to]
};

struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t moved = 0;
};

/// Messages that go out together, and what is done when all are through.
struct Exchange {
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::function<void()> finish;
};

NcclFault the_fault = NcclFault::none;
std::int64_t the_collective = 0;
std::atomic<std::int64_t> num_collectives{0};
std::atomic<std::int64_t> num_groups{0};
std::atomic<std::int64_t> num_live{0};
std::atomic<std::int64_t> num_aborted{0};
std::atomic<int> num_ids{0};

}  // namespace
}  // namespace shardmark::testing

using namespace shardmark::testing;

/// NCCL's opaque type.
struct ncclComm {
  std::string name;
  int rank = 0;
  int size = 1;
  Shared* shared = nullptr;
  double made_s = shardmark::base::now_s();
  bool ready = false;
  int num_splits = 0;
  ncclComm* splitting = nullptr;  // the communicator that a split under way makes
  int split_color = 0;
  bool connected = false;
  std::atomic<int> async{ncclSuccess};
  std::atomic<bool> aborted{false};
  std::atomic<std::int64_t> under_way{0};  // exchanges enqueued and not ended
};

namespace {

void attach(ncclComm& comm) {
  const int file = shm_open(comm.name.c_str(), O_CREAT | O_RDWR, 0600);
  SM_CHECK(file >= 0 && ftruncate(file, sizeof(Shared)) == 0, "the shared memory of the double");
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  SM_CHECK(memory != MAP_FAILED, "the shared memory of the double");
  close(file);
  comm.shared = static_cast<Shared*>(memory);
  comm.shared->arrived.fetch_add(1);
}

/// True once all ranks of a communicator have come.
bool became_ready(ncclComm& comm) {
  const bool held =
      the_fault == NcclFault::init_hangs || (the_fault == NcclFault::init_late && shardmark::base::now_s() - comm.made_s < 1.0);
  if (comm.ready || held || comm.shared == nullptr || comm.shared->arrived.load() < comm.size) {
    return comm.ready;
  }
  comm.ready = true;
  shm_unlink(comm.name.c_str());  // the first to see it; the others' mappings stay
  return true;
}

void finish_split(ncclComm& comm) {
  const auto split = static_cast<std::size_t>(comm.num_splits - 1);
  if (comm.splitting == nullptr || comm.shared->split_arrived[split].load() < comm.size) {
    return;
  }
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < comm.size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (comm.shared->colors[split][at] == comm.split_color) {
      members.emplace_back(comm.shared->keys[split][at], r);
    }
  }
  std::ranges::sort(members);
  ncclComm& made = *std::exchange(comm.splitting, nullptr);
  made.size = static_cast<int>(members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    made.rank = members[i].second == comm.rank ? static_cast<int>(i) : made.rank;
  }
  made.name = fmt::format("{}-{}-{}", comm.name, split, comm.split_color);
  log_nccl_split(made.rank, made.size, comm.rank);
  attach(made);
}

/// Moves what can be moved; true once all is through.
bool advance(ncclComm& comm, Exchange& exchange) {
  bool all = true;
  for (auto& send : exchange.sends) {
    Channel& channel = comm.shared->channels[static_cast<std::size_t>(comm.rank)][static_cast<std::size_t>(send.peer)];
    while (send.moved < send.bytes && channel.written.load() == channel.read.load()) {
      const std::size_t count = std::min(kChunk, send.bytes - send.moved);
      std::memcpy(channel.data.data(), send.data + send.moved, count);
      send.moved += count;
      channel.written.fetch_add(1);
    }
    all = all && send.moved == send.bytes;
  }
  for (auto& receive : exchange.receives) {
    Channel& channel = comm.shared->channels[static_cast<std::size_t>(receive.peer)][static_cast<std::size_t>(comm.rank)];
    while (receive.moved < receive.bytes && channel.written.load() > channel.read.load()) {
      const std::size_t count = std::min(kChunk, receive.bytes - receive.moved);
      std::memcpy(receive.data + receive.moved, channel.data.data(), count);
      receive.moved += count;
      channel.read.fetch_add(1);
    }
    all = all && receive.moved == receive.bytes;
  }
  return all;
}

/// What a collective that goes wrong does.
struct Misdeeds {
  bool never_ends = false;
  bool flips_bit = false;
};

void run_exchange(ncclComm& comm, Exchange& exchange, const Misdeeds& misdeeds, const std::stop_token& stopping) {
  while (!stopping.stop_requested() && !comm.aborted.load()) {
    if (comm.async.load() != ncclSuccess) {
      // As kernels on a device: what an error broke spins on until the abort.
    } else if (comm.shared->failed.load() != 0) {
      comm.async.store(ncclRemoteError);
    } else if (!misdeeds.never_ends && advance(comm, exchange)) {
      if (misdeeds.flips_bit) {
        *exchange.receives.front().data ^= std::byte{1};
      }
      if (exchange.finish) {
        exchange.finish();
      }
      break;
    }
    std::this_thread::yield();
  }
  comm.under_way.fetch_sub(1);
}

ncclResult_t enqueue(ncclComm& comm, cudaStream_t stream, Exchange exchange) {
  const std::int64_t number = num_collectives.fetch_add(1) + 1;
  const bool due = the_collective > 0 && number == the_collective;
  if (due && the_fault == NcclFault::leave) {
    _exit(3);
  }
  if (due && the_fault == NcclFault::async_error) {
    comm.shared->failed.store(comm.rank + 1);
    comm.async.store(ncclSystemError);
  }
  const Misdeeds misdeeds{due && the_fault == NcclFault::silent, due && the_fault == NcclFault::flips_bit};
  if (!std::exchange(comm.connected, true)) {  // as NCCL: at the first use
    log_nccl_paths(comm.rank, comm.size);
  }
  comm.under_way.fetch_add(1);
  reinterpret_cast<shardmark::device::HostStream*>(stream)->enqueue(
      [&comm, misdeeds, shared = std::make_shared<Exchange>(std::move(exchange))](const std::stop_token& stopping) {
        run_exchange(comm, *shared, misdeeds, stopping);
      });
  return ncclSuccess;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: SM_CHECK(false, "a type that the double does not know"); return 0;
  }
}

/// From the last rank to the first, rounding after each addition: not the tree.
template <typename T>
void reduce(const std::byte* parts, int ranks, std::size_t count, ncclRedOp_t operation, void* out) {
  using Element = shardmark::kernels::Element<T>;
  auto* target = static_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](int r) {
      T element;
      std::memcpy(&element, parts + (static_cast<std::size_t>(r) * count + i) * sizeof(T), sizeof(T));
      return Element::widen(element);
    };
    auto sum = value(ranks - 1);
    for (int r = ranks - 2; r >= 0; --r) {
      const auto next = value(r);
      sum = Element::widen(Element::round(operation == ncclSum   ? sum + next
                                          : operation == ncclMax ? std::max(sum, next)
                                                                 : std::min(sum, next)));
    }
    target[i] = Element::round(sum);
  }
}

void reduce_any(const std::byte* parts, int ranks, std::size_t count, ncclDataType_t type, ncclRedOp_t operation, void* out) {
  switch (type) {
    case ncclFloat32: return reduce<float>(parts, ranks, count, operation, out);
    case ncclBfloat16: return reduce<shardmark::kernels::Bf16>(parts, ranks, count, operation, out);
    case ncclFloat64: return reduce<double>(parts, ranks, count, operation, out);
    case ncclInt64: return reduce<std::int64_t>(parts, ranks, count, operation, out);
    case ncclUint8: return reduce<std::uint8_t>(parts, ranks, count, operation, out);
    default: SM_CHECK(false, "a type that the double does not add");
  }
}

std::byte* bytes_of(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));
}

/// Part p of `from`, or all of it where `whole`, goes to rank p; what comes goes to part p of `into`.
Exchange exchange_all(const ncclComm& comm, const void* from, void* into, std::size_t bytes, bool whole) {
  Exchange exchange;
  for (int p = 0; p < comm.size; ++p) {
    const std::size_t offset = static_cast<std::size_t>(p) * bytes;
    exchange.sends.push_back({p, bytes_of(from) + (whole ? 0 : offset), bytes});
    exchange.receives.push_back({p, bytes_of(into) + offset, bytes});
  }
  return exchange;
}

struct Group {
  int depth = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  Exchange messages;
};
thread_local Group the_group;

ncclResult_t send_or_receive(ncclComm& comm, cudaStream_t stream, const Message& message, bool sends) {
  auto& list = sends ? the_group.messages.sends : the_group.messages.receives;
  if (the_group.depth == 0) {
    Exchange alone;
    (sends ? alone.sends : alone.receives).push_back(message);
    return enqueue(comm, stream, std::move(alone));
  }
  the_group.comm = &comm;
  the_group.stream = stream;
  list.push_back(message);
  return ncclSuccess;
}

ncclResult_t reduce_parts(ncclComm& comm, cudaStream_t stream, const void* from, void* out, std::size_t count,
                          ncclDataType_t type, ncclRedOp_t operation, bool whole) {
  auto parts = std::make_shared<std::vector<std::byte>>(count * size_of(type) * static_cast<std::size_t>(comm.size));
  Exchange exchange = exchange_all(comm, from, parts->data(), count * size_of(type), whole);
  exchange.finish = [parts, ranks = comm.size, count, type, operation, out] {
    reduce_any(parts->data(), ranks, count, type, operation, out);
  };
  return enqueue(comm, stream, std::move(exchange));
}

}  // namespace

namespace shardmark::testing {

void plant_nccl_fault(NcclFault fault, std::int64_t collective) {
  the_fault = fault;
  the_collective = fault == NcclFault::none ? 0 : num_collectives.load() + collective;
}

NcclFault nccl_fault_named(const std::string& name) {
  constexpr std::array<const char*, 11> names{"none",          "init_hangs",   "init_late",     "async_error",
                                              "silent",        "leave",        "other_version", "no_id",
                                              "device_in_use", "send_refused", "flips_bit"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) {
      return static_cast<NcclFault>(i);
    }
  }
  throw base::ConfigError("the double knows no fault \"" + name + "\"");
}

NcclCalls nccl_calls() {
  return {num_collectives.load(), num_groups.load(), num_live.load(), num_aborted.load(), the_group.depth};
}

}  // namespace shardmark::testing

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = the_fault == NcclFault::other_version ? NCCL_VERSION_CODE - 1 : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (the_fault == NcclFault::no_id) {
    return ncclSystemError;
  }
  const std::string name = fmt::format("/nccl-double-{}-{}-{}", getpid(), num_ids.fetch_add(1),
                                       std::chrono::steady_clock::now().time_since_epoch().count());
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || ranks > kMaxRanks) {
    return ncclInvalidArgument;
  }
  if (the_fault == NcclFault::device_in_use) {
    return ncclInvalidUsage;
  }
  *comm = new ncclComm;
  num_live.fetch_add(1);
  (*comm)->name = id.internal;
  (*comm)->rank = rank;
  (*comm)->size = ranks;
  log_nccl_init(rank, ranks, (*comm)->name);
  attach(**comm);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* /*config*/) {
  if (comm->num_splits == kMaxSplits || comm->splitting != nullptr) {
    return ncclInvalidUsage;
  }
  const auto split = static_cast<std::size_t>(comm->num_splits++);
  comm->shared->colors[split][static_cast<std::size_t>(comm->rank)] = color;
  comm->shared->keys[split][static_cast<std::size_t>(comm->rank)] = key;
  *made = comm->splitting = new ncclComm;
  num_live.fetch_add(1);
  comm->split_color = color;
  comm->shared->split_arrived[split].fetch_add(1);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  finish_split(*comm);
  const auto async = static_cast<ncclResult_t>(comm->async.load());
  *state = async != ncclSuccess ? async : !became_ready(*comm) || comm->splitting != nullptr ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

/// Waits until what was enqueued has ended: its work names this communicator.
static void give_up(ncclComm_t comm) {
  while (comm->under_way.load() > 0) {
    std::this_thread::yield();
  }
  if (comm->shared != nullptr) {
    munmap(comm->shared, sizeof(Shared));
  }
  delete comm;
  num_live.fetch_sub(1);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  give_up(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (the_group.depth > 0) {
    return ncclInvalidUsage;  // NCCL would put it off to the group's end
  }
  comm->aborted.store(true);
  num_aborted.fetch_add(1);
  give_up(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t /*result*/) {
  return "planted by the double";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "";
}

ncclResult_t ncclGroupStart() {
  ++the_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--the_group.depth > 0) {
    return ncclSuccess;
  }
  num_groups.fetch_add(1);
  if (the_group.comm == nullptr) {
    return ncclSuccess;
  }
  Group group = std::exchange(the_group, {});
  return enqueue(*group.comm, group.stream, std::move(group.messages));
}

ncclResult_t ncclAllReduce(const void* from, void* into, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return reduce_parts(*comm, stream, from, into, count, type, operation, true);
}

ncclResult_t ncclReduceScatter(const void* from, void* into, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  return reduce_parts(*comm, stream, from, into, count, type, operation, false);
}

ncclResult_t ncclAllGather(const void* from, void* into, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  // What lies in its place already is sent away before anything arrives, and is not overwritten by itself.
  return enqueue(*comm, stream, exchange_all(*comm, from, into, count * size_of(type), true));
}

ncclResult_t ncclBroadcast(const void* from, void* into, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  Exchange exchange;
  for (int p = 0; comm->rank == root && p < comm->size; ++p) {
    exchange.sends.push_back({p, bytes_of(from), count * size_of(type)});
  }
  exchange.receives.push_back({root, bytes_of(into), count * size_of(type)});
  return enqueue(*comm, stream, std::move(exchange));
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (the_fault == NcclFault::send_refused) {
    return ncclInternalError;
  }
  return send_or_receive(*comm, stream, {peer, bytes_of(from), count * size_of(type)}, true);
}

ncclResult_t ncclRecv(void* into, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return send_or_receive(*comm, stream, {peer, bytes_of(into), count * size_of(type)}, false);
}

}  // extern "C"

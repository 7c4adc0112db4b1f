// What `shardmark comm` adds to what it measures: its timed loop, a plain loop over the same communicator and a loop of MPI
// calls by hand, in turn, under mpirun. Prints every sample as CSV; comm_loops.py runs it and compares.

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "app/bench/loop.hpp"
#include "comm/mpi_communicator.hpp"
#include "tests/micro/ranks.hpp"

namespace {

namespace comm = shardmark::comm;
using shardmark::base::now_s;

/// Many short rounds: one that another program disturbs is one of many, and the median does not see it.
constexpr int kRounds = 45;
constexpr std::int64_t kBytes[] = {8, 1 << 10, 32 << 10, 512 << 10};

void check(int code) {
  if (code != MPI_SUCCESS) {
    throw std::runtime_error("an MPI call failed");
  }
}

/// One operation of a size: as a collective of ours, and as a program without us would call MPI.
struct Twin {
  std::string name;
  comm::Communicator* communicator = nullptr;
  comm::Collective collective;
  std::function<void()> by_hand;
};

class Twins {
 public:
  Twins(comm::Communicator& ours, comm::Communicator& library, std::int64_t bytes)
      : size_(ours.size()), rank_(ours.rank()), part_(std::max<std::int64_t>(1, bytes / 4 / size_)) {
    first_.resize(static_cast<std::size_t>(part_ * size_));
    second_.resize(first_.size());
    const comm::Buffer first{first_.data(), part_ * size_};
    const comm::Buffer second{second_.data(), part_ * size_};
    const comm::Buffer one{second_.data(), part_};
    const comm::Buffer none;
    const auto add = [&](const char* name, comm::Operation operation, comm::Buffer send, comm::Buffer receive,
                         std::function<void()> by_hand) {
      auto& twin = list_.emplace_back();
      twin.name = name;
      twin.communicator = &ours;
      twin.collective.operation = operation;
      twin.collective.send = send;
      twin.collective.receive = receive;
      twin.by_hand = std::move(by_hand);
    };
    float* a = first_.data();
    float* b = second_.data();
    const int n = static_cast<int>(part_);
    const int all = static_cast<int>(part_ * size_);
    add("all_reduce", comm::Operation::all_reduce, none, first,
        [=] { check(MPI_Allreduce(MPI_IN_PLACE, a, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); });
    add("all_reduce_library", comm::Operation::all_reduce, none, first, [=] {
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Iallreduce(MPI_IN_PLACE, a, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request));
      check(MPI_Wait(&request, MPI_STATUS_IGNORE));
    });
    list_.back().communicator = &library;
    add("reduce_scatter", comm::Operation::reduce_scatter, first, one,
        [=] { check(MPI_Reduce_scatter_block(a, b, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)); });
    add("all_gather", comm::Operation::all_gather, one, first,
        [=] { check(MPI_Allgather(b, n, MPI_FLOAT, a, n, MPI_FLOAT, MPI_COMM_WORLD)); });
    add("broadcast", comm::Operation::broadcast, none, first, [=] { check(MPI_Bcast(a, all, MPI_FLOAT, 0, MPI_COMM_WORLD)); });
    add("all_to_all", comm::Operation::all_to_all, first, second,
        [=] { check(MPI_Alltoall(a, n, MPI_FLOAT, b, n, MPI_FLOAT, MPI_COMM_WORLD)); });
    add("send_receive", comm::Operation::send_receive, first, second, [=, this] {
      MPI_Request requests[2];
      check(MPI_Irecv(b, all, MPI_FLOAT, (rank_ + size_ - 1) % size_, 0, MPI_COMM_WORLD, &requests[0]));
      check(MPI_Isend(a, all, MPI_FLOAT, (rank_ + 1) % size_, 0, MPI_COMM_WORLD, &requests[1]));
      check(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    });
    list_.back().collective.root = 1;
    if (bytes == kBytes[0]) {
      add("barrier", comm::Operation::barrier, none, none, [] { check(MPI_Barrier(MPI_COMM_WORLD)); });
    }
  }

  [[nodiscard]] const std::vector<Twin>& list() const { return list_; }
  [[nodiscard]] std::int64_t bytes() const { return part_ * size_ * 4; }

 private:
  int size_;
  int rank_;
  std::int64_t part_;
  std::vector<float> first_;
  std::vector<float> second_;
  std::vector<Twin> list_;
};

/// Seconds a call of the slowest rank.
double seconds_a_call(std::int64_t calls, const std::function<double()>& loop) {
  shardmark::micro::barrier();
  return shardmark::micro::largest(loop()) / static_cast<double>(calls);
}

void compare(const Twin& twin, std::int64_t bytes, bool prints) {
  const std::int64_t calls = std::clamp<std::int64_t>((4LL << 20) / bytes, 8, 400);
  auto& communicator = *twin.communicator;
  std::vector<double> times_s(static_cast<std::size_t>(calls));
  const auto timed = [&] {
    shardmark::app::bench::time_calls(communicator, twin.collective, times_s);
    return std::accumulate(times_s.begin(), times_s.end(), 0.0);
  };
  const auto plain = [&] {
    const double start_s = now_s();
    for (std::int64_t i = 0; i < calls; ++i) {
      communicator.wait(communicator.start(twin.collective));
    }
    return now_s() - start_s;
  };
  const auto by_hand = [&] {
    const double start_s = now_s();
    for (std::int64_t i = 0; i < calls; ++i) {
      twin.by_hand();
    }
    return now_s() - start_s;
  };
  const std::array<std::function<double()>, 3> loops{timed, plain, by_hand};
  for (int round = -1; round < kRounds; ++round) {  // the first warms up
    // Each is first equally often: who is first after the pause between rounds may find its neighbour asleep.
    std::array<double, 3> seconds{};
    for (int turn = 0; turn < 3; ++turn) {
      const auto loop = static_cast<std::size_t>((round + 1 + turn) % 3);
      seconds[loop] = seconds_a_call(calls, loops[loop]);
    }
    if (prints && round >= 0) {
      std::printf("%s,%lld,%d,%.9g,%.9g,%.9g\n", twin.name.c_str(), static_cast<long long>(bytes), round, seconds[0],
                  seconds[1], seconds[2]);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    if (world.size() < 2) {
      throw shardmark::base::ConfigError("one rank sends nothing: start two at least");
    }
    comm::MpiCommunicator ours(comm::CommHandle::duplicate(world), "world", {});
    comm::MpiCommunicator library(comm::CommHandle::duplicate(world), "library", {.library_from = 2});
    if (world.rank() == 0) {
      std::puts("operation,message_bytes,round,comm_s,plain_s,mpi_s");
    }
    for (const std::int64_t bytes : kBytes) {
      const Twins twins(ours, library, bytes);
      for (const auto& twin : twins.list()) {
        compare(twin, twins.bytes(), world.rank() == 0);
      }
    }
  });
}

#include "world/clock_offset.hpp"

#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "world/handles.hpp"

namespace shardmark::world {
namespace {

constexpr int kClockTag = 2;  // World's gather uses 1

class Exchange {
 public:
  Exchange(World& world, const ClockOptions& options) : world_(world), options_(options) {}

  [[nodiscard]] double now_s() const { return options_.clock ? options_.clock() : base::now_s(); }

  /// On the rank that asks.
  [[nodiscard]] ClockOffset ask() {
    ClockOffset best{0, std::numeric_limits<double>::infinity()};
    for (int trip = 0; trip < options_.round_trips; ++trip) {
      const double sent_s = now_s();
      double theirs_s = 0;
      send(theirs_s, 0);
      receive(theirs_s, 0);
      const double back_s = now_s();
      const double uncertainty_s = (back_s - sent_s) / 2;
      if (uncertainty_s < best.uncertainty_s) {
        best = {(sent_s + back_s) / 2 - theirs_s, uncertainty_s};
      }
    }
    return best;
  }

  /// On rank 0.
  void answer(int peer) {
    for (int trip = 0; trip < options_.round_trips; ++trip) {
      double value = 0;
      receive(value, peer);
      value = now_s();
      send(value, peer);
    }
  }

 private:
  void send(double& value, int peer) {
    MPI_Request request = MPI_REQUEST_NULL;
    auto& handles = world_.handles();
    handles.check(MPI_Isend(&value, 1, MPI_DOUBLE, peer, kClockTag, handles.control, &request), "MPI_Isend");
    wait_for(request);
  }

  void receive(double& value, int peer) {
    MPI_Request request = MPI_REQUEST_NULL;
    auto& handles = world_.handles();
    handles.check(MPI_Irecv(&value, 1, MPI_DOUBLE, peer, kClockTag, handles.control, &request), "MPI_Irecv");
    wait_for(request);
  }

  void wait_for(MPI_Request& request) {
    const WaitInfo info{.operation = "clock offset", .purpose = "control", .bytes = sizeof(double)};
    const double started_s = base::now_s();
    for (std::int64_t turn = 0;; ++turn) {
      int done = 0;
      world_.handles().check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) {
        return;
      }
      world_.poll(turn, started_s, info);
    }
  }

  World& world_;
  const ClockOptions& options_;
};

struct Measured {
  int node = 0;
  int asks = 0;
  ClockOffset offset;
};

std::vector<Measured> exchange_all(World& world, const Measured& mine) {
  std::vector<Measured> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Measured));
  }
  return all;
}

}  // namespace

ClockOffset measure_clock_offset(World& world, const ClockOptions& options) {
  const bool shares = options.one_clock_a_node && (world.node() == 0 || world.node_rank() > 0);
  Measured mine{world.node(), world.rank() > 0 && !shares ? 1 : 0, {}};
  const auto asking = exchange_all(world, mine);
  Exchange exchange(world, options);
  if (world.rank() == 0) {
    for (std::size_t peer = 1; peer < asking.size(); ++peer) {
      if (asking[peer].asks != 0) {
        exchange.answer(static_cast<int>(peer));
      }
    }
  } else if (mine.asks != 0) {
    mine.offset = exchange.ask();
  }
  const auto found = exchange_all(world, mine);
  if (mine.asks == 0) {
    for (const auto& other : found) {
      if (other.asks != 0 && other.node == mine.node && options.one_clock_a_node) {
        return other.offset;
      }
    }
  }
  return mine.offset;
}

}  // namespace shardmark::world

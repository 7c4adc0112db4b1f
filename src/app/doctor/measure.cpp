// Latency and bandwidth of two ranks over the communicator that runs use.

#include <algorithm>
#include <optional>

#include "app/doctor/gather.hpp"
#include "base/clock.hpp"
#include "comm/factory.hpp"

namespace shardmark::app::doctor {
namespace {

constexpr std::int64_t kSmallBytes = 8;
constexpr std::int64_t kLargeBytes = std::int64_t{16} << 20;
constexpr int kWarmUps = 20;
constexpr int kSmallTrips = 201;
constexpr int kLargeTrips = 5;

/// Times of there-and-back trips: each rank in turn broadcasts to the other.
std::vector<double> trips(comm::Communicator& pair, std::int64_t bytes, int num_trips, int num_warm_ups) {
  std::vector<float> words(static_cast<std::size_t>(bytes) / sizeof(float));
  const comm::Buffer buffer{words.data(), static_cast<std::int64_t>(words.size()), base::DType::fp32};
  std::vector<double> times;
  for (int trip = -num_warm_ups; trip < num_trips; ++trip) {
    const double start = base::now_s();
    for (const int root : {0, 1}) {
      pair.broadcast(buffer, root, comm::Purpose::control, bytes).wait();
    }
    if (trip >= 0) {
      times.push_back(base::now_s() - start);
    }
  }
  return times;
}

/// Collective over `all`; the two measure, the others wait.
PairFacts measure_pair(world::World& world, comm::Communicator& all, int second, bool same_node) {
  PairFacts facts{0, second, same_node, 0, 0};
  const bool measures = world.rank() == 0 || world.rank() == second;
  const auto group = all.split(measures ? 1 : 0, measures ? "pair" : "rest");
  if (measures) {
    auto small = trips(*group, kSmallBytes, kSmallTrips, kWarmUps);
    std::ranges::nth_element(small, small.begin() + kSmallTrips / 2);
    facts.latency_s = small[kSmallTrips / 2] / 2;
    const auto large = trips(*group, kLargeBytes, kLargeTrips, 1);
    facts.bytes_per_s = 2 * static_cast<double>(kLargeBytes) / *std::ranges::min_element(large);
  }
  world.barrier();
  return facts;
}

}  // namespace

std::vector<PairFacts> measure_pairs(world::World& world, base::FaultPlan& faults) {
  // Which nodes ranks lie on, known to all: rank 0's partners are chosen alike everywhere.
  const int node = world.node();
  std::optional<int> neighbour;
  std::optional<int> stranger;
  const auto nodes = world.all_gather(std::as_bytes(std::span(&node, 1)));
  const auto node_of = [&](std::size_t rank) { return *reinterpret_cast<const int*>(nodes[rank].data()); };
  for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
    auto& partner = node_of(rank) == node_of(0) ? neighbour : stranger;
    partner = partner.value_or(static_cast<int>(rank));
  }
  std::vector<PairFacts> pairs;
  auto stack = comm::make_communicator(world, {"auto", false, nullptr});
  faults.reach(base::FaultPhase::comm, 0);
  if (neighbour) {
    pairs.push_back(measure_pair(world, stack.communicator(), *neighbour, true));
  }
  if (stranger) {
    pairs.push_back(measure_pair(world, stack.communicator(), *stranger, false));
  }
  return pairs;
}

}  // namespace shardmark::app::doctor

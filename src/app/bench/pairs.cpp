#include "app/bench/pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "app/bench/loop.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::app::bench {
namespace {

using Members = std::vector<int>;  // units

/// Of one group, on rank 0.
struct GroupTimes {
  std::vector<double> times_s;  // of the slowest member
  std::int64_t wrong = 0;
};

class Search {
 public:
  Search(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options, base::FaultPlan& faults,
         const RowSink& sink)
      : world_(world),
        all_(stack.undecorated()),
        backend_(stack.backend()),
        options_(options),
        faults_(faults),
        sink_(sink),
        by_node_(world.num_nodes() > 1),
        bytes_(options.max_bytes > 0 ? options.max_bytes : kPairBytes),
        memory_(bytes_, stack.device()) {
    const int unit = !by_node_ ? world.rank() : world.node_rank() == 0 ? world.node() : -1;
    const auto units = world.all_gather(std::as_bytes(std::span(&unit, 1)));
    for (std::size_t rank = 0; rank < units.size(); ++rank) {
      const int other = *reinterpret_cast<const int*>(units[rank].data());
      unit_of_rank_.push_back(other);
      if (other >= 0) {
        rank_of_unit_.push_back(static_cast<int>(rank));  // nodes are numbered by their first ranks
      }
    }
    SM_CHECK(num_units() >= 2, "pairs need two ranks");
  }

  PairsOutcome run() {
    measure_halves();
    std::vector<PairTime> times = measure_pairs();
    const double typical = world_.rank() == 0 ? typical_s(times) : 0;
    confirm(times, typical);
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] int num_units() const { return static_cast<int>(rank_of_unit_.size()); }
  [[nodiscard]] const char* noun() const { return by_node_ ? "node" : "rank"; }
  [[nodiscard]] std::string name_of_unit(int unit) const {
    return by_node_ ? fmt::format("node {} ({})", unit, world_.host_of(rank_of_unit_[static_cast<std::size_t>(unit)]))
                    : fmt::format("rank {}", unit);
  }

  /// Collective over the world: disjoint groups of units measure at the same time. Their times, in their order, on rank 0.
  [[nodiscard]] std::vector<GroupTimes> measure(const std::vector<Members>& groups, const Case& the_case) {
    const int mine = unit_of_rank_[static_cast<std::size_t>(world_.rank())];
    const auto in = [&](const Members& members) { return std::ranges::find(members, mine) != members.end(); };
    const auto group = std::ranges::find_if(groups, in) - groups.begin();
    const auto communicator = all_.split(static_cast<int>(group), "pairs");
    std::vector<double> numbers;
    if (const bool takes_part = static_cast<std::size_t>(group) < groups.size(); takes_part) {
      const Place place{communicator->rank(), communicator->size(), static_cast<std::uint64_t>(group)};
      numbers = time_group(*communicator, Trial(memory_, the_case, place, options_.order));
    } else {
      world_.barrier();
    }
    ++index_;
    std::vector<GroupTimes> found;
    const auto received = world_.gather(std::as_bytes(std::span(numbers)));
    if (world_.rank() != 0) {
      return found;
    }
    for (const auto& members : groups) {
      std::vector<std::vector<double>> of_members;
      auto& result = found.emplace_back();
      for (const int unit : members) {
        const auto& bytes = received[static_cast<std::size_t>(rank_of_unit_[static_cast<std::size_t>(unit)])];
        auto& times = of_members.emplace_back(bytes.size() / sizeof(double));
        std::memcpy(times.data(), bytes.data(), bytes.size());
        result.wrong += static_cast<std::int64_t>(times.back());
        times.pop_back();
      }
      result.times_s = slowest(of_members);
      outcome_.num_wrong += result.wrong;
    }
    return found;
  }

  /// This rank's times, then its number of wrong elements. Here a planted slow rank sleeps inside the time.
  [[nodiscard]] std::vector<double> time_group(comm::Communicator& communicator, const Trial& trial) {
    const auto call = [&] {
      communicator.wait(communicator.start(trial.collective()));
      end_of_device_work(communicator);
    };
    trial.fill();
    call();
    trial.fetch();
    if (const auto element = faults_.due(base::FaultPhase::comm, index_, base::FaultKind::bitflip)) {
      trial.flip_bit(element->empty() ? 0 : std::strtol(element->c_str(), nullptr, 10));
    }
    const std::int64_t wrong = trial.count_wrong();
    trial.clear();
    world_.barrier();  // all groups at the same time
    std::vector<double> numbers;
    const std::int64_t iterations = options_.iterations > 0 ? options_.iterations : kPairIterations;
    for (std::int64_t i = -options_.warmup; i < iterations; ++i) {
      const double start_s = base::now_s();
      faults_.reach(base::FaultPhase::comm, index_);
      call();
      if (i >= 0) {
        numbers.push_back(base::now_s() - start_s);
      }
    }
    numbers.push_back(static_cast<double>(wrong));
    return numbers;
  }

  [[nodiscard]] Case make_case(comm::Operation operation, std::int64_t in_place) const {
    const auto dtype = options_.dtypes.front();
    return {operation, dtype, options_.reductions.front(), in_place, message_count(operation, bytes_, dtype, 1)};
  }

  record::CommRow make_row(const Case& the_case, const std::string& group, int ranks, const GroupTimes& found) const {
    auto row = describe_case(the_case, options_.order, group, backend_, ranks);
    add_times(row, the_case.operation, found.times_s);
    row.wrong = found.wrong;
    return row;
  }

  void add(const record::CommRow& row) {
    outcome_.rows.push_back(row);
    sink_(row);
  }

  void measure_halves() {
    const Case the_case = make_case(comm::Operation::all_reduce, 1);
    for (const auto& level : make_halves(num_units())) {
      std::vector<Members> groups;
      for (const auto& [first, end] : level) {
        auto& members = groups.emplace_back();
        for (int unit = first; unit < end; ++unit) {
          members.push_back(unit);
        }
      }
      const auto found = measure(groups, the_case);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto& [first, end] = level[i];
        add(make_row(the_case, fmt::format("{}s {} to {}", noun(), first, end - 1), end - first, found[i]));
      }
    }
  }

  [[nodiscard]] std::vector<PairTime> measure_pairs() {
    const Case the_case = make_case(comm::Operation::send_receive, 0);
    std::vector<PairTime> times;
    std::vector<record::CommRow> rows;
    for (const auto& round : make_rounds(num_units())) {
      std::vector<Members> groups;
      for (const auto& pair : round) {
        groups.push_back({pair.first, pair.second});
      }
      const auto found = measure(groups, the_case);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto& pair = round[i];
        rows.push_back(make_row(the_case, fmt::format("{} {} + {} {}", noun(), pair.first, noun(), pair.second), 2, found[i]));
        times.push_back({pair, rows.back().time_p50_s, rows.back().time_min_s});
      }
    }
    std::ranges::stable_sort(rows, std::greater(), &record::CommRow::time_p50_s);
    std::ranges::for_each(rows, [&](const auto& row) { add(row); });
    return times;
  }

  /// What was slow beside other pairs must be slow alone, too.
  void confirm(const std::vector<PairTime>& times, double typical) {
    const auto no_verdict = reason_for_no_verdict(num_units(), bytes_, world_.oversubscribed());
    std::vector<Pair> suspects;
    if (world_.rank() == 0 && no_verdict.empty()) {
      for (const auto& suspect : suspects_of(times, typical)) {
        suspects.push_back(suspect.pair);
      }
    }
    const std::size_t num_suspects = suspects.size();
    suspects.resize(std::min(num_suspects, kMaxSuspects));
    const auto bytes = world_.broadcast(std::as_bytes(std::span(suspects)));
    suspects.resize(bytes.size() / sizeof(Pair));
    if (!suspects.empty()) {
      std::memcpy(suspects.data(), bytes.data(), bytes.size());
    }
    std::vector<PairTime> bad;
    for (const auto& pair : suspects) {
      const auto found = measure({{pair.first, pair.second}}, make_case(comm::Operation::send_receive, 0));
      if (world_.rank() == 0) {
        const auto alone = summarise(found.front().times_s);
        bad.push_back({pair, alone.p50_s, alone.min_s});
      }
    }
    if (world_.rank() == 0) {
      judge(bad_pairs_of(bad, typical), num_suspects, typical, no_verdict);
    }
  }

  void judge(const std::vector<PairTime>& bad, std::size_t num_suspects, double typical, const std::string& no_verdict) {
    std::vector<std::string> texts;
    for (const int unit : bad_units(bad, num_units())) {
      texts.push_back(fmt::format("bad {}: {} is slow with every other one", noun(), name_of_unit(unit)));
    }
    for (const auto& [pair, time_s, fastest_s] : bad) {
      texts.push_back(fmt::format("bad pair: {} and {} take {:.3g} x the typical {:.4g} us", name_of_unit(pair.first),
                                  name_of_unit(pair.second), time_s / typical, typical * 1e6));
    }
    if (num_suspects > kMaxSuspects) {
      texts.push_back(fmt::format("{} more pairs were slow and not measured again", num_suspects - kMaxSuspects));
    }
    outcome_.found_bad = !bad.empty();
    const std::string what = by_node_ ? "nodes" : "ranks of one node";
    outcome_.verdict = !no_verdict.empty() ? fmt::format("no verdict on {} {}: {}", num_units(), what, no_verdict)
                       : !bad.empty()
                           ? base::join(texts, "; ")
                           : fmt::format("no bad pair among {} {}: none takes {} x the typical {:.4g} us when it is alone",
                                         num_units(), what, kBadFactor, typical * 1e6);
  }

  world::World& world_;
  comm::Communicator& all_;
  const std::string& backend_;
  const CommOptions& options_;
  base::FaultPlan& faults_;
  const RowSink& sink_;
  bool by_node_;
  std::int64_t bytes_;
  Memory memory_;
  std::vector<int> unit_of_rank_;  // -1: takes no part
  std::vector<int> rank_of_unit_;
  std::int64_t index_ = 0;  // of what is measured at a time: what planted faults count
  PairsOutcome outcome_;
};

}  // namespace

PairsOutcome search_pairs(world::World& world, comm::CommunicatorStack& stack, const CommOptions& options,
                          base::FaultPlan& faults, const RowSink& sink) {
  return Search(world, stack, options, faults, sink).run();
}

}  // namespace shardmark::app::bench

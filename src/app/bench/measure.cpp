#include "app/bench/measure.hpp"

#include <cstdlib>
#include <cstring>
#include <span>

#include "app/bench/loop.hpp"

namespace shardmark::app::bench {

record::CommRow describe_case(const Case& the_case, comm::SumOrder order, const std::string& group, const std::string& backend,
                              int ranks) {
  record::CommRow row;
  row.operation = name_of(the_case.operation);
  row.group = group;
  row.backend = backend;
  row.ranks = ranks;
  row.in_place = the_case.in_place;
  if (the_case.operation != comm::Operation::barrier) {
    row.dtype = base::name_of(the_case.dtype);
    row.message_bytes = the_case.message_bytes();
    row.count = the_case.count;
  }
  if (reduces(the_case.operation)) {
    row.reduction = name_of(the_case.reduction);
    row.sum_order = the_case.reduction == comm::Reduction::sum ? name_of(order) : "";
  }
  return row;
}

void add_times(record::CommRow& row, comm::Operation operation, const std::vector<double>& times_s) {
  const Times times = summarise(times_s);
  row.iterations = static_cast<std::int64_t>(times_s.size());
  row.time_p50_s = times.p50_s;
  row.time_p99_s = times.p99_s;
  row.time_min_s = times.min_s;
  row.time_mean_s = times.mean_s;
  if (operation != comm::Operation::barrier) {
    row.algbw_gb_s = static_cast<double>(row.message_bytes) / times.p50_s * 1e-9;
    row.busbw_gb_s = row.algbw_gb_s * bus_factor(operation, static_cast<int>(row.ranks));
  }
}

void Bench::time_calls_anywhere(const comm::Collective& collective, comm::Communicator& communicator,
                                std::vector<double>& times_s) {
  if (communicator.runs_by_itself()) {
    time_calls_on_device(device_, communicator, collective, times_s);
  } else {
    time_calls(communicator, collective, times_s);
  }
}

std::int64_t Bench::run_checked(comm::Communicator& communicator, const Trial& trial, bool plants) {
  trial.fill();
  communicator.wait(communicator.start(trial.collective()));
  end_of_device_work(communicator);
  trial.fetch();
  if (plants) {
    if (const auto element = faults_.due(base::FaultPhase::comm, index_, base::FaultKind::bitflip)) {
      trial.flip_bit(element->empty() ? 0 : std::strtol(element->c_str(), nullptr, 10));
    }
  }
  return trial.count_wrong();
}

record::CommRow Bench::measure(const Group& group, const Case& the_case, Memory& memory) {
  auto& communicator = *group.communicator;
  const Place place{communicator.rank(), communicator.size(), group.salt};
  const Trial trial(memory, the_case, place, options_.order);
  std::int64_t wrong = run_checked(communicator, trial, false);
  trial.clear();
  const std::int64_t bytes = the_case.operation == comm::Operation::barrier ? 0 : the_case.message_bytes();
  const std::int64_t iterations = options_.iterations > 0 ? options_.iterations : default_iterations(bytes);
  // The last number is the rank's count of wrong elements: exact in a double up to 2^53.
  std::vector<double> times_s(static_cast<std::size_t>(options_.warmup));
  time_calls_anywhere(trial.collective(), communicator, times_s);
  times_s.resize(static_cast<std::size_t>(iterations));
  faults_.reach(base::FaultPhase::comm, index_);
  world_.barrier();
  time_calls_anywhere(trial.collective(), communicator, times_s);
  wrong += run_checked(communicator, trial, true);
  ++index_;

  auto row = describe_case(the_case, options_.order, group.name, backend_, place.size);
  times_s.push_back(static_cast<double>(wrong));
  std::vector<std::vector<double>> of_ranks;
  std::int64_t all_wrong = 0;
  for (const auto& received : world_.gather(std::as_bytes(std::span(times_s)))) {
    auto& numbers = of_ranks.emplace_back(received.size() / sizeof(double));
    std::memcpy(numbers.data(), received.data(), received.size());
    all_wrong += static_cast<std::int64_t>(numbers.back());
    numbers.pop_back();
  }
  if (!of_ranks.empty()) {
    add_times(row, the_case.operation, slowest(of_ranks));
    row.wrong = the_case.operation == comm::Operation::barrier ? -1 : all_wrong;
    num_wrong_ += all_wrong;
  }
  return row;
}

}  // namespace shardmark::app::bench

#include "comm/counting_communicator.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/random.hpp"

namespace shardmark::comm {
namespace {

constexpr std::size_t kMaxSamples = 512;

double median_of(std::vector<double> samples) {
  if (samples.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const std::size_t half = samples.size() / 2;
  std::ranges::nth_element(samples, samples.begin() + static_cast<std::ptrdiff_t>(half));
  const double upper = samples[half];
  if (samples.size() % 2 == 1) {
    return upper;
  }
  return (*std::ranges::max_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(half)) + upper) / 2;
}

}  // namespace

std::size_t CollectiveCounts::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = base::hash_text(key.group);
  hash = base::hash_mix(hash, static_cast<std::uint64_t>(key.operation));
  hash = base::hash_mix(hash, static_cast<std::uint64_t>(key.purpose));
  hash = base::hash_mix(hash, static_cast<std::uint64_t>(key.dtype));
  return base::hash_mix(hash, 2 * static_cast<std::uint64_t>(key.message_bytes) + (key.timed ? 1 : 0));
}

void CollectiveCounts::reset() {
  index_.clear();
  rows_.clear();
  exposed_s_ = 0;
  ++generation_;
}

std::int64_t CollectiveCounts::count(const Collective& collective, const std::string& group, int size, bool timed) {
  if (!counting_) {
    return -1;
  }
  const Key key{collective.operation, collective.purpose, collective.message_dtype(), collective.message_bytes(), group, timed};
  auto found = index_.find(key);
  if (found == index_.end()) {
    found = index_.emplace(key, static_cast<std::int64_t>(rows_.size())).first;
    Row row;
    row.stats = {.operation = key.operation,
                 .purpose = key.purpose,
                 .group = group,
                 .dtype = key.dtype,
                 .message_bytes = key.message_bytes,
                 .min_s = std::numeric_limits<double>::infinity(),
                 .timed = timed};
    row.samples.reserve(kMaxSamples);
    rows_.push_back(std::move(row));
  }
  CollectiveStats& stats = rows_[static_cast<std::size_t>(found->second)].stats;
  ++stats.count;
  stats.wire_bytes += comm::wire_bytes(collective, size);
  return found->second;
}

void CollectiveCounts::add_exposed(std::int64_t row, double seconds) {
  rows_[static_cast<std::size_t>(row)].stats.exposed_s += seconds;
  exposed_s_ += seconds;
}

void CollectiveCounts::add_completed(std::int64_t row, double seconds) {
  Row& target = rows_[static_cast<std::size_t>(row)];
  target.stats.total_s += seconds;
  target.stats.min_s = std::min(target.stats.min_s, seconds);
  target.stats.max_s = std::max(target.stats.max_s, seconds);
  if (target.num_completed % target.stride == 0) {
    if (target.samples.size() == kMaxSamples) {
      for (std::size_t i = 0; i < kMaxSamples / 2; ++i) {
        target.samples[i] = target.samples[2 * i];
      }
      target.samples.resize(kMaxSamples / 2);
      target.stride *= 2;
    }
    target.samples.push_back(seconds);
  }
  ++target.num_completed;
}

void CollectiveCounts::set_trace(base::Trace* trace) {
  trace_.reset();
  if (trace != nullptr) {
    trace_.emplace(*trace);
  }
}

std::vector<CollectiveStats> CollectiveCounts::rows() const {
  std::vector<CollectiveStats> rows;
  for (const Row& row : rows_) {
    CollectiveStats stats = row.stats;
    if (row.num_completed == 0) {
      stats.min_s = stats.max_s = std::numeric_limits<double>::quiet_NaN();
    }
    if (!stats.timed) {
      stats.total_s = stats.exposed_s = std::numeric_limits<double>::quiet_NaN();
    }
    stats.median_s = median_of(row.samples);
    rows.push_back(std::move(stats));
  }
  return rows;
}

CountingCommunicator::CountingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<CollectiveCounts> counts)
    : inner_(std::move(inner)), counts_(std::move(counts)) {}

void CountingCommunicator::expose(const Flight& flight, double seconds) {
  if (flight.row >= 0 && flight.generation == counts_->generation()) {
    counts_->add_exposed(flight.row, seconds);
  }
}

void CountingCommunicator::land(Ticket known, double now_s) {
  while (!in_flight_.empty() && (in_flight_.front().ticket <= known || inner_->test(in_flight_.front().ticket))) {
    const Flight& flight = in_flight_.front();
    if (flight.timed && flight.row >= 0 && flight.generation == counts_->generation()) {
      counts_->add_completed(flight.row, now_s - flight.started_s);
    }
    if (auto* trace = counts_->trace(); trace != nullptr) {
      trace->complete(flight.event, now_s);
    }
    in_flight_.pop_front();
  }
}

std::int64_t CountingCommunicator::trace_start(CollectiveTrace& trace, const Collective& collective, double now_s) {
  if (!traced_group_) {
    traced_group_ = trace.group(inner_->name());
  }
  return trace.start(collective, *traced_group_, now_s);
}

Ticket CountingCommunicator::start(const Collective& collective) {
  Flight flight;
  // What travels between hosts is complete, and timed, in any case.
  flight.timed =
      !inner_->runs_by_itself() || collective.operation == Operation::barrier || collective.receive.place == Place::host;
  flight.row = counts_->count(collective, inner_->name(), inner_->size(), flight.timed);
  flight.generation = counts_->generation();
  flight.started_s = base::now_s();
  if (auto* trace = counts_->trace(); trace != nullptr) {
    flight.event = trace_start(*trace, collective, flight.started_s);
  }
  flight.ticket = inner_->start(collective);
  in_flight_.push_back(flight);
  expose(flight, base::now_s() - flight.started_s);
  return flight.ticket;
}

bool CountingCommunicator::test(Ticket ticket) {
  if (in_flight_.empty() || ticket < in_flight_.front().ticket) {
    return inner_->test(ticket);
  }
  progress();
  return in_flight_.empty() || ticket < in_flight_.front().ticket;
}

void CountingCommunicator::wait(Ticket ticket) {
  if (in_flight_.empty() || ticket < in_flight_.front().ticket) {
    inner_->wait(ticket);
    return;
  }
  const Flight& waited = in_flight_[static_cast<std::size_t>(
      std::min<Ticket>(ticket - in_flight_.front().ticket, static_cast<Ticket>(in_flight_.size()) - 1))];
  const double started_s = base::now_s();
  inner_->wait(ticket);
  const double now_s = base::now_s();
  expose(waited, now_s - started_s);
  if (auto* trace = counts_->trace(); trace != nullptr) {
    trace->waited(waited.event, started_s, now_s);
  }
  land(ticket, now_s);
}

void CountingCommunicator::progress() {
  if (in_flight_.empty()) {
    inner_->progress();
    return;
  }
  const double started_s = base::now_s();
  const Flight oldest = in_flight_.front();
  inner_->progress();
  const double now_s = base::now_s();
  expose(oldest, now_s - started_s);
  land(0, now_s);
}

std::unique_ptr<Communicator> CountingCommunicator::split(int color, const std::string& name) {
  return std::make_unique<CountingCommunicator>(inner_->split(color, name), counts_);
}

}  // namespace shardmark::comm

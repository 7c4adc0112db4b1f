#include "comm/mpi_algorithms.hpp"

#include <algorithm>

#include "comm/mpi_moves.hpp"
#include "comm/mpi_sums.hpp"

namespace shardmark::comm {

Plan Algorithm::begin(const Collective& collective, int tag) {
  collective_ = collective;
  tag_ = tag;
  return plan();
}

std::int64_t Algorithm::element_bytes() const {
  return static_cast<std::int64_t>(base::size_of(collective_.message_dtype()));
}

std::int64_t Algorithm::chunk_elements(std::int64_t limit_bytes) const {
  const std::int64_t by_bytes = std::max<std::int64_t>(1, limit_bytes / element_bytes());
  return options_.max_chunk_elements > 0 ? std::min(options_.max_chunk_elements, by_bytes) : by_bytes;
}

void Algorithm::send(const std::byte* data, std::int64_t count, int to, int tag, Round& round) const {
  if (count > 0) {
    group_.send(data, count * element_bytes(), to, tag, round.requests);
  }
}

void Algorithm::receive(std::byte* data, std::int64_t count, int from, int tag, Round& round) const {
  if (count > 0) {
    group_.receive(data, count * element_bytes(), from, tag, round.requests);
  }
}

AlgorithmSet::AlgorithmSet(const MpiGroup& group, const MpiOptions& options)
    : group_(group),
      options_(options),
      whole_sum_(std::make_unique<WholeSum>(group, options)),
      direct_sum_(std::make_unique<DirectSum>(group, options)),
      library_sum_(std::make_unique<LibrarySum>(group, options)),
      exchange_(std::make_unique<Exchange>(group, options)),
      broadcast_(std::make_unique<Broadcast>(group, options)),
      shift_(std::make_unique<Shift>(group, options)),
      barrier_(std::make_unique<Barrier>(group, options)) {}

AlgorithmSet::~AlgorithmSet() = default;

Algorithm& AlgorithmSet::choose(const Collective& collective) {
  switch (collective.operation) {
    case Operation::all_reduce: {
      const base::DType dtype = collective.receive.dtype;
      const bool small = collective.receive.bytes() * (group_.size() - 1) <= options_.small_bytes &&
                         (options_.max_chunk_elements == 0 || collective.receive.count <= options_.max_chunk_elements);
      const bool library = collective.reduction == Reduction::sum && collective.order == SumOrder::fast &&
                           group_.size() >= options_.library_from && (dtype == base::DType::fp32 || dtype == base::DType::fp64);
      return library ? *library_sum_ : small ? *whole_sum_ : *direct_sum_;
    }
    case Operation::reduce_scatter: return *direct_sum_;
    case Operation::all_gather:
    case Operation::all_to_all: return *exchange_;
    case Operation::broadcast: return *broadcast_;
    case Operation::send_receive: return *shift_;
    case Operation::barrier: return *barrier_;
  }
  return *barrier_;
}

}  // namespace shardmark::comm

#include "train/gather_items.hpp"

#include <algorithm>
#include <cstdint>

namespace shardmark::train {

std::vector<double> gather_items(comm::Communicator& communicator, const std::vector<double>& mine) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  auto count = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> counts(ranks);
  communicator
      .all_gather(comm::host_buffer(&count, 1, base::DType::int64),
                  comm::host_buffer(counts.data(), communicator.size(), base::DType::int64), comm::Purpose::control, 0)
      .wait();
  const std::int64_t most = *std::ranges::max_element(counts);
  if (most == 0) {
    return {};
  }
  std::vector<double> padded = mine;
  padded.resize(static_cast<std::size_t>(most));
  std::vector<double> all(padded.size() * ranks);
  communicator
      .all_gather(comm::host_buffer(padded.data(), most, base::DType::fp64),
                  comm::host_buffer(all.data(), most * communicator.size(), base::DType::fp64), comm::Purpose::control, 0)
      .wait();
  std::vector<double> joined;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * padded.size());
    joined.insert(joined.end(), begin, begin + counts[rank]);
  }
  return joined;
}

}  // namespace shardmark::train

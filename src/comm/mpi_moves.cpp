#include "comm/mpi_moves.hpp"

#include <algorithm>
#include <cstring>

namespace shardmark::comm {

Plan Exchange::plan() {
  const bool gather = collective_.operation == Operation::all_gather;
  part_ = gather ? collective_.send.count : collective_.send.count / group_.size();
  chunk_ = chunk_elements(options_.chunk_bytes);
  return {(part_ + chunk_ - 1) / chunk_, options_.window};
}

void Exchange::post_first(Round& round) {
  const bool gather = collective_.operation == Operation::all_gather;
  const std::int64_t begin = round.index * chunk_;
  const std::int64_t count = std::min(chunk_, part_ - begin);
  const auto* from = static_cast<const std::byte*>(collective_.send.data);
  auto* to = static_cast<std::byte*>(collective_.receive.data);
  const auto sent = [&](int rank) { return from + ((gather ? 0 : rank * part_) + begin) * element_bytes(); };
  const auto received = [&](int rank) { return to + (rank * part_ + begin) * element_bytes(); };
  for (int i = 0; i < group_.size() - 1; ++i) {
    receive(received(peer(i)), count, peer(i), tag_, round);
  }
  for (int i = 0; i < group_.size() - 1; ++i) {
    send(sent(peer(i)), count, peer(i), tag_, round);
  }
  if (sent(group_.rank()) != received(group_.rank())) {
    std::memcpy(received(group_.rank()), sent(group_.rank()), static_cast<std::size_t>(count * element_bytes()));
  }
}

Plan Broadcast::plan() {
  chunk_ = chunk_elements(options_.chunk_bytes);
  return {group_.size() == 1 ? 0 : (collective_.receive.count + chunk_ - 1) / chunk_, options_.window};
}

std::int64_t Broadcast::count_of(const Round& round) const {
  return std::min(chunk_, collective_.receive.count - begin_of(round));
}

void Broadcast::post_first(Round& round) {
  const int place = (group_.rank() - collective_.root + group_.size()) % group_.size();
  if (place != 0) {
    const int parent = (place & (place - 1)) + collective_.root;
    auto* data = static_cast<std::byte*>(collective_.receive.data);
    receive(data + begin_of(round) * element_bytes(), count_of(round), parent % group_.size(), tag_, round);
  }
}

void Broadcast::post_second(Round& round) {
  const int place = (group_.rank() - collective_.root + group_.size()) % group_.size();
  int bit = 1;
  while (bit < group_.size() && (place & bit) == 0) {
    bit *= 2;
  }
  const auto* data = static_cast<const std::byte*>(collective_.receive.data);
  for (bit /= 2; bit > 0; bit /= 2) {  // the child with the largest subtree first
    if (const int child = place + bit; child < group_.size()) {
      send(data + begin_of(round) * element_bytes(), count_of(round), (child + collective_.root) % group_.size(), tag_, round);
    }
  }
}

Plan Shift::plan() {
  chunk_ = chunk_elements(options_.chunk_bytes);
  return {(collective_.send.count + chunk_ - 1) / chunk_, options_.window};
}

void Shift::post_first(Round& round) {
  const std::int64_t begin = round.index * chunk_;
  const std::int64_t count = std::min(chunk_, collective_.send.count - begin);
  const auto* from = static_cast<const std::byte*>(collective_.send.data) + begin * element_bytes();
  auto* to = static_cast<std::byte*>(collective_.receive.data) + begin * element_bytes();
  if (collective_.root == 0) {
    std::memcpy(to, from, static_cast<std::size_t>(count * element_bytes()));
    return;
  }
  receive(to, count, (group_.rank() - collective_.root + group_.size()) % group_.size(), tag_, round);
  send(from, count, (group_.rank() + collective_.root) % group_.size(), tag_, round);
}

Plan Barrier::plan() {
  std::int64_t rounds = 0;
  while ((std::int64_t{1} << rounds) < group_.size()) {
    ++rounds;
  }
  return {rounds, 1};
}

void Barrier::post_first(Round& round) {
  const int distance = 1 << round.index;
  group_.receive(nullptr, 0, (group_.rank() - distance + group_.size()) % group_.size(), tag_, round.requests);
  group_.send(nullptr, 0, (group_.rank() + distance) % group_.size(), tag_, round.requests);
}

}  // namespace shardmark::comm

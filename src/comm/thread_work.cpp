#include "comm/thread_work.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "comm/tree_operation.hpp"

namespace shardmark::comm {
namespace {

/// One rank's part of one phase.
class Work {
 public:
  Work(const std::vector<Collective>& asked, int rank)
      : asked_(asked), mine_(asked[static_cast<std::size_t>(rank)]), rank_(rank), size_(static_cast<int>(asked.size())) {}

  void run(int phase) const {
    const std::int64_t part = mine_.receive.count / size_;
    switch (mine_.operation) {
      case Operation::all_reduce: phase == 0 ? sum_part() : fetch_parts(); break;
      case Operation::reduce_scatter:
        sum(&Collective::send, rank_ * mine_.receive.count, mine_.receive.count, at(mine_.receive, 0));
        break;
      case Operation::all_gather:
        for (int other = 0; other < size_; ++other) {
          copy(at(mine_.receive, other * part), at(of(other).send, 0), part);
        }
        break;
      case Operation::broadcast: copy(at(mine_.receive, 0), at(of(mine_.root).receive, 0), mine_.receive.count); break;
      case Operation::all_to_all:
        for (int other = 0; other < size_; ++other) {
          copy(at(mine_.receive, other * part), at(of(other).send, rank_ * part), part);
        }
        break;
      case Operation::send_receive:
        copy(at(mine_.receive, 0), at(of((rank_ - mine_.root + size_) % size_).send, 0), mine_.receive.count);
        break;
      case Operation::barrier: break;
    }
  }

 private:
  [[nodiscard]] const Collective& of(int rank) const { return asked_[static_cast<std::size_t>(rank)]; }

  static std::byte* at(const Buffer& buffer, std::int64_t element) {
    return static_cast<std::byte*>(buffer.data) + element * static_cast<std::int64_t>(base::size_of(buffer.dtype));
  }

  void copy(std::byte* into, const std::byte* from, std::int64_t count) const {
    if (count > 0 && into != from) {
      std::memcpy(into, from, static_cast<std::size_t>(count) * base::size_of(mine_.receive.dtype));
    }
  }

  void sum(Buffer Collective::*buffer, std::int64_t first, std::int64_t count, std::byte* out) const {
    if (count == 0) {
      return;
    }
    std::vector<const void*> sources;
    for (const auto& collective : asked_) {
      sources.push_back(at(collective.*buffer, first));
    }
    if (mine_.receive.dtype != mine_.message_dtype()) {
      kernels::tree_sum_widened(sources.data(), size_, reinterpret_cast<float*>(out), count);
    } else {
      kernels::tree_reduce(sources.data(), size_, out, count, mine_.receive.dtype, tree_operation(mine_.reduction));
    }
  }

  /// Elements of an all_reduce that `rank` sums: they need not divide evenly.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> part_of(int rank) const {
    const std::int64_t count = mine_.receive.count;
    const std::int64_t part = (count + size_ - 1) / size_;
    const std::int64_t begin = std::min(rank * part, count);
    return {begin, std::min(part, count - begin)};
  }

  void sum_part() const {
    const auto [begin, count] = part_of(rank_);
    sum(&Collective::receive, begin, count, at(mine_.receive, begin));
  }

  void fetch_parts() const {
    for (int other = 0; other < size_; ++other) {
      const auto [begin, count] = part_of(other);
      copy(at(mine_.receive, begin), at(of(other).receive, begin), count);
    }
  }

  const std::vector<Collective>& asked_;
  const Collective& mine_;
  int rank_;
  int size_;
};

}  // namespace

void do_work(const std::vector<Collective>& asked, int rank, int phase) {
  Work(asked, rank).run(phase);
}

}  // namespace shardmark::comm

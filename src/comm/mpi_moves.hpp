#pragma once
// Collectives that move data without adding: all_gather and all_to_all, broadcast, send_receive, barrier.

#include "comm/mpi_algorithms.hpp"

namespace shardmark::comm {

/// all_gather and all_to_all: rank r's piece goes straight to its place on every other rank.
class Exchange final : public Algorithm {
 public:
  using Algorithm::Algorithm;
  void post_first(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;

 private:
  std::int64_t part_ = 0;
  std::int64_t chunk_ = 1;
};

/// Along a binomial tree rooted at `root`: a rank passes each piece on as soon as it has it.
class Broadcast final : public Algorithm {
 public:
  using Algorithm::Algorithm;
  void post_first(Round& round) override;
  void post_second(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;

 private:
  [[nodiscard]] std::int64_t begin_of(const Round& round) const { return round.index * chunk_; }
  [[nodiscard]] std::int64_t count_of(const Round& round) const;

  std::int64_t chunk_ = 1;
};

/// send_receive: every rank passes its buffer on by `root` places, all at once.
class Shift final : public Algorithm {
 public:
  using Algorithm::Algorithm;
  void post_first(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;

 private:
  std::int64_t chunk_ = 1;
};

/// Dissemination: in round k a rank tells the one 2^k ahead and hears from the one 2^k behind.
class Barrier final : public Algorithm {
 public:
  using Algorithm::Algorithm;
  void post_first(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;
};

}  // namespace shardmark::comm

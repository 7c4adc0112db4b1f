#pragma once
// Sums over ranks. All but the library's add along the fixed tree of kernels/tree_sum, so `fast` and `ordered` share them.

#include "comm/mpi_algorithms.hpp"

namespace shardmark::comm {

/// Small all_reduce: everyone sends everything to everyone and adds for itself.
class WholeSum final : public Algorithm {
 public:
  WholeSum(const MpiGroup& group, const MpiOptions& options);
  void post_first(Round& round) override;
  void post_second(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;

 private:
  std::vector<const void*> sources_;
};

/// reduce_scatter, and all_reduce as reduce_scatter with all_gather: rank r owns part r, receives that part from all others
/// piece by piece, adds, and in an all_reduce sends the sum back to all.
class DirectSum final : public Algorithm {
 public:
  DirectSum(const MpiGroup& group, const MpiOptions& options);
  void post_first(Round& round) override;
  void post_second(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override;

 private:
  struct Piece {
    std::int64_t begin;
    std::int64_t count;
  };
  /// The piece of `part` that travels in a round, in elements of the whole buffer.
  [[nodiscard]] Piece piece(int part, std::int64_t round) const;

  std::vector<const void*> sources_;
  std::byte* whole_ = nullptr;  // all parts: what is sent
  std::byte* own_ = nullptr;    // where this rank's sum goes
  std::int64_t count_ = 0;
  std::int64_t part_ = 0;
  std::int64_t chunk_ = 1;
};

/// MPI_Iallreduce in pieces, for many ranks in `fast` order. All pieces are posted at once: non-blocking collectives of one
/// communicator must start in the same order everywhere.
class LibrarySum final : public Algorithm {
 public:
  using Algorithm::Algorithm;
  void post_first(Round& round) override;

 protected:
  [[nodiscard]] Plan plan() override { return {1, 1}; }
};

}  // namespace shardmark::comm

// World's blocking exchanges of control data, on non-blocking calls with a deadline.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "world/handles.hpp"
#include "world/sides.hpp"

namespace shardmark::world {
namespace {

constexpr int kGatherTag = 1;
/// MPI counts are int: longer texts travel in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30U;

/// What a rank says after a step that may have failed: an exit code and a message.
std::vector<std::byte> pack_outcome(int code, std::string_view message) {
  std::vector<std::byte> bytes(sizeof code + message.size());
  std::memcpy(bytes.data(), &code, sizeof code);
  std::memcpy(bytes.data() + sizeof code, message.data(), message.size());
  return bytes;
}

std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The start of a value, so that a configuration does not fill the screen, and what tells it from others.
std::string shorten(const std::string& value) {
  constexpr std::size_t kMost = 200;
  return value.size() <= kMost ? value : fmt::format("{}... (hash {:016x})", value.substr(0, kMost), base::hash_text(value));
}

}  // namespace

void World::wait_for(void* request, std::string_view operation, std::int64_t bytes) {
  const WaitInfo info{.operation = operation, .purpose = "", .sequence = sequence_, .tag = 0, .bytes = bytes};
  const double started_s = base::now_s();
  auto* pending = static_cast<MPI_Request*>(request);
  for (std::int64_t turn = 0;; ++turn) {
    int done = 0;
    handles_->check(MPI_Test(pending, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) {
      return;
    }
    poll(turn, started_s, info);
  }
}

void World::barrier() {
  ++sequence_;
  MPI_Request request = MPI_REQUEST_NULL;
  handles_->check(MPI_Ibarrier(handles_->control, &request), "MPI_Ibarrier");
  wait_for(&request, "barrier", 0);
}

std::vector<std::vector<std::byte>> World::gather(std::span<const std::byte> mine) {
  ++sequence_;
  const auto num_ranks = static_cast<std::size_t>(size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(rank() == 0 ? num_ranks : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  handles_->check(MPI_Igather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, 0, handles_->control, &request),
                  "MPI_Igather");
  wait_for(&request, "gather", length);
  std::vector<std::vector<std::byte>> all;
  if (rank() != 0) {
    for (std::size_t begin = 0; begin < mine.size(); begin += kPiece) {
      const auto count = static_cast<int>(std::min(kPiece, mine.size() - begin));
      handles_->check(MPI_Isend(mine.data() + begin, count, MPI_BYTE, 0, kGatherTag, handles_->control, &request), "MPI_Isend");
      wait_for(&request, "gather", count);
    }
    return all;
  }
  all.emplace_back(mine.begin(), mine.end());
  for (std::size_t peer = 1; peer < num_ranks; ++peer) {
    auto& theirs = all.emplace_back(static_cast<std::size_t>(lengths[peer]));
    for (std::size_t begin = 0; begin < theirs.size(); begin += kPiece) {
      const auto count = static_cast<int>(std::min(kPiece, theirs.size() - begin));
      handles_->check(
          MPI_Irecv(theirs.data() + begin, count, MPI_BYTE, static_cast<int>(peer), kGatherTag, handles_->control, &request),
          "MPI_Irecv");
      wait_for(&request, "gather", count);
    }
  }
  return all;
}

std::vector<std::vector<std::byte>> World::all_gather(std::span<const std::byte> mine) {
  ++sequence_;
  const auto num_ranks = static_cast<std::size_t>(size());
  SM_CHECK(mine.size() * num_ranks < static_cast<std::size_t>(std::numeric_limits<int>::max()),
           "control data of an all_gather is too long: use gather");
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(num_ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  handles_->check(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handles_->control, &request),
                  "MPI_Iallgather");
  wait_for(&request, "all_gather", length);
  std::vector<int> begins(num_ranks);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::vector<std::byte> joined(static_cast<std::size_t>(begins.back()) + static_cast<std::size_t>(lengths.back()));
  handles_->check(MPI_Iallgatherv(mine.data(), length, MPI_BYTE, joined.data(), lengths.data(), begins.data(), MPI_BYTE,
                                  handles_->control, &request),
                  "MPI_Iallgatherv");
  wait_for(&request, "all_gather", length);
  std::vector<std::vector<std::byte>> all;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const auto begin = joined.begin() + begins[r];
    all.emplace_back(begin, begin + lengths[r]);
  }
  return all;
}

std::vector<std::byte> World::broadcast(std::span<const std::byte> from_rank_0) {
  ++sequence_;
  auto length = static_cast<std::int64_t>(from_rank_0.size());
  MPI_Request request = MPI_REQUEST_NULL;
  handles_->check(MPI_Ibcast(&length, 1, MPI_INT64_T, 0, handles_->control, &request), "MPI_Ibcast");
  wait_for(&request, "broadcast", length);
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  if (rank() == 0) {
    std::ranges::copy(from_rank_0, bytes.begin());
  }
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    const auto count = static_cast<int>(std::min(kPiece, bytes.size() - begin));
    handles_->check(MPI_Ibcast(bytes.data() + begin, count, MPI_BYTE, 0, handles_->control, &request), "MPI_Ibcast");
    wait_for(&request, "broadcast", count);
  }
  return bytes;
}

void World::agree(std::string_view what, std::string_view value) {
  const auto all = all_gather(std::as_bytes(std::span(value)));
  if (std::ranges::all_of(all, [&](const auto& other) { return other == all.front(); })) {
    return;
  }
  std::vector<std::string> texts;
  std::vector<int> ranks;
  for (const auto& bytes : all) {
    ranks.push_back(static_cast<int>(texts.size()));
    texts.push_back(shorten(to_text(bytes)));
  }
  throw base::MismatchError(
      fmt::format("ranks differ in {}: {}. Start every rank with the same program, configuration and files", what,
                  sides_text(texts, ranks)));
}

void World::collectively(std::string_view what, const std::function<void()>& step) {
  std::exception_ptr own;
  int code = 0;
  std::string message;
  try {
    step();
  } catch (const std::exception& error) {
    own = std::current_exception();
    code = static_cast<int>(base::exit_code_of(error));
    message = error.what();
  }
  std::vector<int> failed_ranks;
  int first_code = 0;
  std::string first_message;
  const auto all = all_gather(pack_outcome(code, message));
  for (std::size_t r = 0; r < all.size(); ++r) {
    int rank_code = 0;
    std::memcpy(&rank_code, all[r].data(), sizeof rank_code);
    if (rank_code == 0) {
      continue;
    }
    if (failed_ranks.empty()) {
      first_code = rank_code;
      first_message = to_text(std::span(all[r]).subspan(sizeof rank_code));
    }
    failed_ranks.push_back(static_cast<int>(r));
  }
  if (own) {
    std::rethrow_exception(own);
  }
  if (!failed_ranks.empty()) {
    const std::string others = failed_ranks.size() == 1 ? "" : fmt::format(" (and {} more ranks)", failed_ranks.size() - 1);
    throw base::RemoteError(static_cast<base::ExitCode>(first_code),
                            fmt::format("{} failed on rank {} on {}{}: {}", what, failed_ranks.front(),
                                        host_of(failed_ranks.front()), others, first_message));
  }
}

}  // namespace shardmark::world

#include "comm/mpi_sums.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/tree_operation.hpp"

namespace shardmark::comm {
namespace {

/// Libraries fall off a cliff with larger messages.
constexpr std::int64_t kLibraryPieceBytes = 4 * 1024 * 1024;

/// Below Open MPI's eager limit of shared memory (4096 bytes with header): a message of up to this size is copied out when it
/// is sent, without a handshake. A rank that comes late to a sum then finds all of it there, which in training saves more than
/// the handshake's single copy does where both ranks come at once: mlp at 2 ranks takes 0.091 ms a step instead of 0.100,
/// mlp-digits 0.205 instead of 0.221 (AMD EPYC, 2 cores), although a loop of nothing but such sums is slower.
constexpr std::int64_t kEagerBytes = 4032;

void grow(std::vector<std::byte>& staging, std::int64_t bytes) {
  if (staging.size() < static_cast<std::size_t>(bytes)) {
    staging.resize(static_cast<std::size_t>(bytes));
  }
}

}  // namespace

WholeSum::WholeSum(const MpiGroup& group, const MpiOptions& options)
    : Algorithm(group, options), sources_(static_cast<std::size_t>(group.size())) {}

Plan WholeSum::plan() {
  return {collective_.receive.count == 0 || group_.size() == 1 ? 0 : 1, 1};
}

void WholeSum::post_first(Round& round) {
  const Buffer& buffer = collective_.receive;
  const std::int64_t piece = kEagerBytes / element_bytes();
  grow(round.staging, buffer.bytes() * (group_.size() - 1));
  sources_[static_cast<std::size_t>(group_.rank())] = buffer.data;
  for (int i = 0; i < group_.size() - 1; ++i) {
    std::byte* theirs = round.staging.data() + i * buffer.bytes();
    sources_[static_cast<std::size_t>(peer(i))] = theirs;
    for (std::int64_t begin = 0; begin < buffer.count; begin += piece) {
      receive(theirs + begin * element_bytes(), std::min(piece, buffer.count - begin), peer(i), tag_, round);
    }
  }
  const auto* mine = static_cast<const std::byte*>(buffer.data);
  for (std::int64_t begin = 0; begin < buffer.count; begin += piece) {
    for (int i = 0; i < group_.size() - 1; ++i) {
      send(mine + begin * element_bytes(), std::min(piece, buffer.count - begin), peer(i), tag_, round);
    }
  }
}

void WholeSum::post_second(Round& /*round*/) {
  const Buffer& buffer = collective_.receive;
  kernels::tree_reduce(sources_.data(), group_.size(), buffer.data, buffer.count, buffer.dtype,
                       tree_operation(collective_.reduction));
}

DirectSum::DirectSum(const MpiGroup& group, const MpiOptions& options)
    : Algorithm(group, options), sources_(static_cast<std::size_t>(group.size())) {}

Plan DirectSum::plan() {
  const bool scatter = collective_.operation == Operation::reduce_scatter;
  const Buffer& all = scatter ? collective_.send : collective_.receive;
  whole_ = static_cast<std::byte*>(all.data);
  count_ = all.count;
  part_ = scatter ? collective_.receive.count : (count_ + group_.size() - 1) / group_.size();
  chunk_ = chunk_elements(std::max<std::int64_t>(64 * 1024, 2 * options_.chunk_bytes / std::max(2, group_.size())));
  own_ = scatter ? static_cast<std::byte*>(collective_.receive.data) : whole_ + group_.rank() * part_ * element_bytes();
  return {(part_ + chunk_ - 1) / chunk_, options_.window};
}

DirectSum::Piece DirectSum::piece(int part, std::int64_t round) const {
  const std::int64_t end = std::min((part + 1) * part_, count_);
  const std::int64_t begin = std::min(part * part_ + round * chunk_, end);
  return {begin, std::min(chunk_, end - begin)};
}

void DirectSum::post_first(Round& round) {
  const Piece mine = piece(group_.rank(), round.index);
  grow(round.staging, chunk_ * element_bytes() * (group_.size() - 1));
  for (int i = 0; i < group_.size() - 1; ++i) {
    receive(round.staging.data() + i * chunk_ * element_bytes(), mine.count, peer(i), tag_, round);
  }
  for (int i = 0; i < group_.size() - 1; ++i) {
    const Piece theirs = piece(peer(i), round.index);
    send(whole_ + theirs.begin * element_bytes(), theirs.count, peer(i), tag_, round);
  }
}

void DirectSum::post_second(Round& round) {
  const Piece mine = piece(group_.rank(), round.index);
  std::byte* sum = own_ + round.index * chunk_ * static_cast<std::int64_t>(base::size_of(collective_.receive.dtype));
  if (mine.count > 0) {
    sources_[static_cast<std::size_t>(group_.rank())] = whole_ + mine.begin * element_bytes();
    for (int i = 0; i < group_.size() - 1; ++i) {
      sources_[static_cast<std::size_t>(peer(i))] = round.staging.data() + i * chunk_ * element_bytes();
    }
    if (collective_.receive.dtype != collective_.message_dtype()) {
      kernels::tree_sum_widened(sources_.data(), group_.size(), reinterpret_cast<float*>(sum), mine.count);
    } else {
      kernels::tree_reduce(sources_.data(), group_.size(), sum, mine.count, collective_.receive.dtype,
                           tree_operation(collective_.reduction));
    }
  }
  if (collective_.operation == Operation::reduce_scatter) {
    return;
  }
  // What comes back overwrites what was sent in the first half: those sends are complete.
  for (int i = 0; i < group_.size() - 1; ++i) {
    const Piece theirs = piece(peer(i), round.index);
    receive(whole_ + theirs.begin * element_bytes(), theirs.count, peer(i), tag_ + 1, round);
  }
  for (int i = 0; i < group_.size() - 1; ++i) {
    send(sum, mine.count, peer(i), tag_ + 1, round);
  }
}

void LibrarySum::post_first(Round& round) {
  const Buffer& buffer = collective_.receive;
  SM_CHECK(buffer.dtype == base::DType::fp32 || buffer.dtype == base::DType::fp64, "the library sums fp32 and fp64 only");
  const auto type = buffer.dtype == base::DType::fp32 ? MPI_FLOAT : MPI_DOUBLE;
  const std::int64_t most = chunk_elements(kLibraryPieceBytes);
  for (std::int64_t begin = 0; begin < buffer.count; begin += most) {
    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(
        MPI_Iallreduce(MPI_IN_PLACE, static_cast<std::byte*>(buffer.data) + begin * element_bytes(),
                       static_cast<int>(std::min(most, buffer.count - begin)), type, MPI_SUM, group_.handle().get(), &request),
        "MPI_Iallreduce");
    round.requests.push_back(request);
  }
}

}  // namespace shardmark::comm

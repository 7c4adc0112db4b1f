// How each collective becomes NCCL calls on the communicator's stream. `ordered` sums are exchanged by grouped sends and added
// by our own kernel along the fixed tree: NCCL's own order depends on algorithm and topology.

#include <nccl.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/nccl_communicator.hpp"
#include "comm/nccl_stream_kernels.hpp"
#include "comm/tree_operation.hpp"
#include "device/memory_ledger.hpp"

namespace shardmark::comm {
namespace {

ncclDataType_t type_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::fp32: return ncclFloat32;
    case base::DType::bf16: return ncclBfloat16;
    case base::DType::fp64: return ncclFloat64;
    case base::DType::int64: return ncclInt64;
    case base::DType::uint8: return ncclUint8;
  }
  throw base::InvariantError("a type that NCCL does not carry");
}

ncclRedOp_t operation_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return ncclSum;
    case Reduction::max: return ncclMax;
    case Reduction::min: return ncclMin;
  }
  throw base::InvariantError("a reduction that NCCL does not know");
}

std::size_t count_of(const Buffer& buffer) {
  return static_cast<std::size_t>(buffer.count);
}

cudaStream_t cuda(device::Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace

/// Sums that are received wider than they travel are a tree's, too: NCCL has one type per call.
bool NcclCommunicator::is_ordered(const Collective& collective) const {
  const bool reduces = collective.operation == Operation::all_reduce || collective.operation == Operation::reduce_scatter;
  return reduces && (collective.order == SumOrder::ordered || collective.receive.dtype != collective.message_dtype());
}

/// Doubles at least: those that were too small, and may still be read, are together no larger than the one in use.
void* NcclCommunicator::staging(std::size_t bytes) {
  const std::size_t before = staging_.empty() ? 0 : staging_.back()->bytes();
  if (staging_.empty() || before < bytes) {
    const device::MemoryScope scope(device::MemoryCategory::workspace);
    staging_.push_back(device_.allocate(std::max(bytes, 2 * before)));
  }
  return staging_.back()->data();
}

template <typename Calls>
void NcclCommunicator::together(const Calls& calls) {
  check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    static_cast<void>(ncclGroupEnd());  // the abort that follows is no part of the group
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
}

void NcclCommunicator::enqueue(const Collective& c) {
  if (is_ordered(c)) {
    enqueue_ordered(c);
    return;
  }
  const ncclDataType_t type = type_of(c.message_dtype());
  switch (c.operation) {
    case Operation::all_reduce:
      check(ncclAllReduce(c.receive.data, c.receive.data, count_of(c.receive), type, operation_of(c.reduction), handle_->get(),
                          cuda(*stream_)),
            "ncclAllReduce");
      return;
    case Operation::reduce_scatter:
      check(ncclReduceScatter(c.send.data, c.receive.data, count_of(c.receive), type, operation_of(c.reduction), handle_->get(),
                              cuda(*stream_)),
            "ncclReduceScatter");
      return;
    case Operation::all_gather:
      check(ncclAllGather(c.send.data, c.receive.data, count_of(c.send), type, handle_->get(), cuda(*stream_)),
            "ncclAllGather");
      return;
    case Operation::broadcast:
      check(ncclBroadcast(c.receive.data, c.receive.data, count_of(c.receive), type, c.root, handle_->get(), cuda(*stream_)),
            "ncclBroadcast");
      return;
    case Operation::all_to_all: exchange_parts(c, static_cast<std::byte*>(c.receive.data)); return;
    case Operation::send_receive:
      together([&] {
        check(ncclSend(c.send.data, count_of(c.send), type, (rank() + c.root) % size(), handle_->get(), cuda(*stream_)),
              "ncclSend");
        check(ncclRecv(c.receive.data, count_of(c.receive), type, (rank() - c.root + size()) % size(), handle_->get(),
                       cuda(*stream_)),
              "ncclRecv");
      });
      return;
    case Operation::barrier: return;  // the hosts' affair
  }
}

/// Part p of `send` to rank p; what comes from rank p goes to part p of `into`.
void NcclCommunicator::exchange_parts(const Collective& c, std::byte* into) {
  const Buffer& from = c.operation == Operation::all_reduce ? c.receive : c.send;
  const std::size_t part = count_of(from) / static_cast<std::size_t>(size());
  const std::size_t bytes = part * base::size_of(from.dtype);
  const ncclDataType_t type = type_of(from.dtype);
  const auto* parts = static_cast<const std::byte*>(from.data);
  together([&] {
    for (int peer = 0; peer < size(); ++peer) {
      const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
      check(ncclSend(parts + offset, part, type, peer, handle_->get(), cuda(*stream_)), "ncclSend");
      check(ncclRecv(into + offset, part, type, peer, handle_->get(), cuda(*stream_)), "ncclRecv");
    }
  });
}

void NcclCommunicator::enqueue_ordered(const Collective& c) {
  SM_CHECK(!together_, "ordered sums are no part of a group of collectives");
  const auto ranks = static_cast<std::size_t>(size());
  const Buffer& whole = c.operation == Operation::all_reduce ? c.receive : c.send;
  const std::size_t element = base::size_of(whole.dtype);
  const auto tree = [&](std::byte* sources, std::size_t count, void* out) {
    std::vector<const void*> each;
    for (std::size_t r = 0; r < ranks; ++r) {
      each.push_back(sources + r * count * element);
    }
    const auto elements = static_cast<std::int64_t>(count);
    if (c.receive.dtype != whole.dtype) {
      tree_sum_widened_on(*stream_, each, static_cast<float*>(out), elements);
    } else {
      tree_reduce_on(*stream_, each, out, elements, whole.dtype, tree_operation(c.reduction));
    }
  };
  if (c.operation == Operation::all_reduce && count_of(whole) % ranks != 0) {
    // A few control values: everyone adds everything.
    auto* all = static_cast<std::byte*>(staging(ranks * count_of(whole) * element));
    check(ncclAllGather(whole.data, all, count_of(whole), type_of(whole.dtype), handle_->get(), cuda(*stream_)),
          "ncclAllGather");
    tree(all, count_of(whole), c.receive.data);
    return;
  }
  const std::size_t part = count_of(whole) / ranks;
  auto* parts = static_cast<std::byte*>(staging(count_of(whole) * element));
  exchange_parts(c, parts);
  if (c.operation == Operation::reduce_scatter) {
    tree(parts, part, c.receive.data);
    return;
  }
  auto* mine = static_cast<std::byte*>(c.receive.data) + static_cast<std::size_t>(rank()) * part * element;
  tree(parts, part, mine);
  check(ncclAllGather(mine, c.receive.data, part, type_of(whole.dtype), handle_->get(), cuda(*stream_)), "ncclAllGather");
}

}  // namespace shardmark::comm

#pragma once
// The one interface of communication: asynchronous collectives of a group of ranks, in order, on one queue. Others include
// this header; only comm/factory.cpp sees the implementations. Knows nothing of tensors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/dtype.hpp"

namespace shardmark::device {
class Event;
}

namespace shardmark::comm {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_receive, barrier };
enum class Reduction : std::uint8_t { sum, max, min };
/// fast: the library chooses the order of additions. ordered: fp32 (double for fp64) sums along one fixed binary tree over
/// ranks, split at the largest power of two below n; values are rounded to the buffer's dtype once, at the end.
enum class SumOrder : std::uint8_t { fast, ordered };
enum class Purpose : std::uint8_t { gradient, parameter, buffer, control };

[[nodiscard]] std::string_view name_of(Operation operation);
[[nodiscard]] std::string_view name_of(Reduction reduction);
[[nodiscard]] std::string_view name_of(SumOrder order);
[[nodiscard]] std::string_view name_of(Purpose purpose);

/// Where a buffer lies: in the memory where training runs, or in the host's wherever that is. A communicator over a device's
/// network carries host memory apart and at once: its `start` waits then.
enum class Place : std::uint8_t { device, host };

/// `count` elements, lent until the operation completes.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  base::DType dtype = base::DType::fp32;
  Place place = Place::device;
  [[nodiscard]] std::int64_t bytes() const { return count * static_cast<std::int64_t>(base::size_of(dtype)); }
};

/// Of host memory, wherever training runs.
[[nodiscard]] inline Buffer host_buffer(void* data, std::int64_t count, base::DType dtype) {
  return {data, count, dtype, Place::host};
}

/// One collective as asked for. All ranks of the group must start equal descriptions in the same order: operation,
/// reduction, order, counts, dtype, root, purpose and tag.
///   all_reduce      receive = whole buffer, in place (send unused)
///   reduce_scatter  send = size x n elements, receive = n elements, rank r gets part r; receive may be part r of send. A sum
///                   of bf16 may be received in fp32, not rounded: half a tree, whose other half another group adds
///   all_gather      send = n elements, receive = size x n; send may be part r of receive
///   broadcast       receive = buffer, from `root`
///   all_to_all      send and receive = size x n elements; part p goes to rank p; no overlap
///   send_receive    send goes to the rank `root` places ahead, cyclically, receive comes from the one `root` places behind;
///                   equally many elements, no overlap
///   barrier         no buffers
struct Collective {
  Operation operation = Operation::barrier;
  Reduction reduction = Reduction::sum;
  SumOrder order = SumOrder::fast;
  Buffer send;
  Buffer receive;
  int root = 0;  // broadcast: whose data; send_receive: how many places ahead, from 0 to size - 1
  Purpose purpose = Purpose::control;
  std::int64_t tag = 0;  // says which bucket, unit or step; compared by the checking decorator, printed on a deadline
  /// Bytes of the whole padded buffer: what `message_bytes` of a record means.
  [[nodiscard]] std::int64_t message_bytes() const;
  /// Of the elements that travel.
  [[nodiscard]] base::DType message_dtype() const {
    return operation == Operation::reduce_scatter ? send.dtype : receive.dtype;
  }
};

/// Nominal bytes one rank of a group of `size` puts on the wire (design section 3): all_reduce 2 (g-1)/g S, barrier 0,
/// send_receive S, or 0 to the rank itself, the others (g-1)/g S.
[[nodiscard]] double wire_bytes(const Collective& collective, int size);

/// Throws InvariantError if the buffers do not fit the operation in a group of `size`: every implementation's first check.
void check_shape(const Collective& collective, int size);

using Ticket = std::int64_t;

class Communicator;

/// A started collective. Waiting on it is the owner's duty: dropping an unwaited one is a programming error, not a wait.
class Pending {
 public:
  Pending() = default;
  Pending(Communicator* communicator, Ticket ticket) : communicator_(communicator), ticket_(ticket) {}
  /// Blocks until the buffers may be used. Throws as Communicator::wait. Does nothing if empty.
  void wait();
  [[nodiscard]] bool done();
  [[nodiscard]] Ticket ticket() const { return ticket_; }

 private:
  Communicator* communicator_ = nullptr;
  Ticket ticket_ = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  /// This rank's place in the group and the group's size.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// The group's name in records: "world", "node", "gather", ...
  [[nodiscard]] virtual const std::string& name() const = 0;

  /// Queues one collective. Collective call: see Collective. May already do part of the work, never blocks on other ranks
  /// except where a decorator says so. Buffers stay lent until `wait` returns for this ticket or a later one.
  /// Tickets count up from 1. Operations complete in order. Throws on a mismatch seen at once.
  [[nodiscard]] virtual Ticket start(const Collective& collective) = 0;
  /// True once the ticket's operation is complete; moves the queue on, never blocks.
  [[nodiscard]] virtual bool test(Ticket ticket) = 0;
  /// Blocks until complete. Throws DeadlineError (exit 7) naming operation, sequence number, rank and the silent ranks,
  /// RemoteError if another rank reported a failure, MpiError. After any of these nothing on this communicator may go on.
  virtual void wait(Ticket ticket) = 0;
  /// Moves started operations on without blocking: called between pieces of computation, so that collectives advance under
  /// it without a thread that would steal a core.
  virtual void progress() = 0;
  /// Whether operations run without the host: then `wait` returns at once and holds back later computation instead, and what
  /// `test` finds depends on chance, so that decisions taken by it would differ between runs.
  [[nodiscard]] virtual bool runs_by_itself() const { return false; }
  /// Whether all ranks must start what they start here and on communicators split from the same first one in one order. Else
  /// the order matters within each communicator alone.
  [[nodiscard]] virtual bool needs_one_order() const { return false; }
  /// Copies `bytes` from where buffers lie to the host, once all computation enqueued so far is done; the host waits. Throws as
  /// `wait`. Local.
  virtual void read(void* into, const void* from, std::size_t bytes);
  /// Waits for an event of the device, looking for failures and deadlines meanwhile. Throws as `wait`. Local.
  virtual void follow(device::Event& event);
  /// What is started between these goes out together, where that is cheaper; no wait or test in between.
  virtual void begin_together() {}
  virtual void end_together() {}
  /// Collective: ranks of equal `color` form a group, ordered by rank in this one.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, const std::string& name) = 0;

  // Shorthands that fill a Collective.
  [[nodiscard]] Pending all_reduce(Buffer buffer, Purpose purpose, std::int64_t tag, SumOrder order = SumOrder::fast,
                                   Reduction reduction = Reduction::sum);
  [[nodiscard]] Pending reduce_scatter(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag,
                                       SumOrder order = SumOrder::fast);
  [[nodiscard]] Pending all_gather(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag);
  [[nodiscard]] Pending broadcast(Buffer buffer, int root, Purpose purpose, std::int64_t tag);
  [[nodiscard]] Pending all_to_all(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag);
  [[nodiscard]] Pending send_receive(Buffer send, Buffer receive, int ahead, Purpose purpose, std::int64_t tag);
  [[nodiscard]] Pending barrier(std::int64_t tag = 0);
};

}  // namespace shardmark::comm

#include "app/bench/buffers.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "app/bench/values.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::app::bench {
namespace {

using comm::Buffer;
using comm::Operation;

void set_bytes(const Buffer& buffer, int value) {
  if (buffer.count > 0) {
    std::memset(buffer.data, value, static_cast<std::size_t>(buffer.bytes()));
  }
}

}  // namespace

Memory::Memory(std::int64_t bytes, device::Device& device) : device_(device) {
  const std::size_t num_lines = static_cast<std::size_t>(bytes) / sizeof(Line) + 1;
  try {
    first_.resize(num_lines);
    second_.resize(num_lines);
  } catch (const std::bad_alloc&) {
    throw base::MemoryError(
        fmt::format("two buffers of {} are more memory than this process may have (see ulimit -v): give a "
                    "smaller --max",
                    base::format_bytes(static_cast<double>(bytes))));
  }
  if (device_.cuda_index() >= 0) {
    first_on_device_ = device_.allocate(first_.size() * sizeof(Line));
    second_on_device_ = device_.allocate(second_.size() * sizeof(Line));
  }
}

std::byte* Memory::on_device(const void* on_host) {
  const auto* at = static_cast<const std::byte*>(on_host);
  const bool in_first = at >= first() && at < first() + first_.size() * sizeof(Line);
  return in_first ? static_cast<std::byte*>(first_on_device_->data()) + (at - first())
                  : static_cast<std::byte*>(second_on_device_->data()) + (at - second());
}

comm::Buffer Memory::moved(comm::Buffer on_host) {
  if (first_on_device_ && on_host.data != nullptr) {
    on_host.data = on_device(on_host.data);
  }
  return on_host;
}

void Memory::upload(const comm::Buffer& on_host) {
  if (first_on_device_ && on_host.count > 0) {
    device_.write(on_device(on_host.data), on_host.data, static_cast<std::size_t>(on_host.bytes()), [](std::int64_t) {});
  }
}

void Memory::download(const comm::Buffer& on_host) {
  if (first_on_device_ && on_host.count > 0) {
    device_.read(on_host.data, on_device(on_host.data), static_cast<std::size_t>(on_host.bytes()), [](std::int64_t) {});
  }
}

Trial::Trial(Memory& memory, const Case& the_case, const Place& place, comm::SumOrder order) : memory_(memory), place_(place) {
  collective_.operation = the_case.operation;
  collective_.reduction = the_case.reduction;
  collective_.order = order;
  collective_.purpose = comm::Purpose::buffer;
  const Buffer whole{memory.first(), the_case.count, the_case.dtype};
  const Buffer other{memory.second(), the_case.count, the_case.dtype};
  switch (the_case.operation) {
    case Operation::all_reduce:
    case Operation::broadcast: collective_.receive = whole; break;
    case Operation::reduce_scatter:
      collective_.send = whole;
      collective_.receive = the_case.in_place == 1 ? part(whole, place.rank) : part(other, 0);
      break;
    case Operation::all_gather:
      collective_.receive = whole;
      collective_.send = the_case.in_place == 1 ? part(whole, place.rank) : part(other, 0);
      break;
    case Operation::send_receive: collective_.root = 1 % place.size; [[fallthrough]];
    case Operation::all_to_all:
      collective_.send = whole;
      collective_.receive = other;
      break;
    case Operation::barrier: break;
  }
  moved_ = collective_;
  moved_.send = memory_.moved(collective_.send);
  moved_.receive = memory_.moved(collective_.receive);
}

void Trial::upload() const {
  memory_.upload(collective_.send);
  memory_.upload(collective_.receive);
}

void Trial::fetch() const {
  memory_.download(collective_.receive);
}

Buffer Trial::part(Buffer whole, int index) const {
  const std::int64_t count = whole.count / place_.size;
  const std::int64_t begin = index * count * static_cast<std::int64_t>(base::size_of(whole.dtype));
  return {static_cast<std::byte*>(whole.data) + begin, count, whole.dtype};
}

void Trial::fill() const {
  fill_on_host();
  upload();
}

void Trial::fill_on_host() const {
  const auto& [operation, reduction, order, send, receive, root, purpose, tag] = collective_;
  constexpr int kNoResult = 0xa5;
  const auto write = [&](const Buffer& buffer, int terms) {
    values_of({buffer.dtype, place_.salt, terms}, place_.rank, buffer.count).write(buffer, 0);
  };
  switch (operation) {
    case Operation::all_reduce: write(receive, place_.size); break;
    case Operation::reduce_scatter:
      set_bytes(receive, kNoResult);  // before: it may be part of send
      write(send, place_.size);
      break;
    case Operation::broadcast:
      set_bytes(receive, kNoResult);
      if (place_.rank == root) {
        write(receive, 1);
      }
      break;
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::send_receive:
      set_bytes(receive, kNoResult);
      write(send, 1);
      break;
    case Operation::barrier: break;
  }
}

void Trial::clear() const {
  set_bytes(collective_.receive, 0);
  set_bytes(collective_.send, 0);
  upload();
}

std::int64_t Trial::count_wrong() const {
  const auto& [operation, reduction, order, send, receive, root, purpose, tag] = collective_;
  const auto from = [&](int rank, std::int64_t count) { return values_of({receive.dtype, place_.salt, 1}, rank, count); };
  const ValueKind summed{receive.dtype, place_.salt, place_.size};
  std::int64_t wrong = 0;
  switch (operation) {
    case Operation::all_reduce: return reduced_values(summed, reduction, receive.count).count_wrong(receive, 0);
    case Operation::reduce_scatter:
      return reduced_values(summed, reduction, send.count).count_wrong(receive, place_.rank * receive.count);
    case Operation::broadcast: return from(root, receive.count).count_wrong(receive, 0);
    case Operation::send_receive:
      return from((place_.rank - root + place_.size) % place_.size, receive.count).count_wrong(receive, 0);
    case Operation::all_gather:
      for (int rank = 0; rank < place_.size; ++rank) {
        wrong += from(rank, send.count).count_wrong(part(receive, rank), 0);
      }
      return wrong;
    case Operation::all_to_all:
      for (int rank = 0; rank < place_.size; ++rank) {
        const Buffer piece = part(receive, rank);
        wrong += from(rank, send.count).count_wrong(piece, place_.rank * piece.count);
      }
      return wrong;
    case Operation::barrier: break;
  }
  return 0;
}

void Trial::flip_bit(std::int64_t element) const {
  const Buffer& received = collective_.receive;
  if (received.count > 0) {
    const auto size = static_cast<std::int64_t>(base::size_of(received.dtype));
    static_cast<std::byte*>(received.data)[element % received.count * size] ^= std::byte{1};
  }
}

}  // namespace shardmark::app::bench

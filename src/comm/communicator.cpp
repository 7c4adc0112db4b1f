#include "comm/communicator.hpp"

#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "device/device.hpp"

namespace shardmark::comm {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
    case Operation::all_to_all: return "all_to_all";
    case Operation::send_receive: return "send_receive";
    case Operation::barrier: return "barrier";
  }
  return "?";
}

std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
  }
  return "?";
}

std::string_view name_of(SumOrder order) {
  return order == SumOrder::fast ? "fast" : "ordered";
}

std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::gradient: return "gradient";
    case Purpose::parameter: return "parameter";
    case Purpose::buffer: return "buffer";
    case Purpose::control: return "control";
  }
  return "?";
}

std::int64_t Collective::message_bytes() const {
  switch (operation) {
    case Operation::reduce_scatter:
    case Operation::all_to_all:
    case Operation::send_receive: return send.bytes();
    case Operation::all_reduce:
    case Operation::all_gather:
    case Operation::broadcast: return receive.bytes();
    case Operation::barrier: return 0;
  }
  return 0;
}

double wire_bytes(const Collective& collective, int size) {
  if (size <= 1 || collective.operation == Operation::barrier) {
    return 0;
  }
  if (collective.operation == Operation::send_receive) {
    return collective.root == 0 ? 0 : static_cast<double>(collective.message_bytes());
  }
  const double share = static_cast<double>(size - 1) / size * static_cast<double>(collective.message_bytes());
  return collective.operation == Operation::all_reduce ? 2 * share : share;
}

void check_shape(const Collective& collective, int size) {
  const auto& [operation, reduction, order, send, receive, root, purpose, tag] = collective;
  const std::string name(name_of(operation));
  SM_CHECK(send.count >= 0 && receive.count >= 0, name + ": a count is negative");
  const bool widens = operation == Operation::reduce_scatter && reduction == Reduction::sum &&
                      send.dtype == base::DType::bf16 && receive.dtype == base::DType::fp32;
  SM_CHECK(send.count == 0 || send.dtype == receive.dtype || widens, name + ": send and receive differ in dtype");
  switch (operation) {
    case Operation::reduce_scatter:
      SM_CHECK(send.count == size * receive.count, name + ": send must hold as many parts as there are ranks");
      break;
    case Operation::all_gather:
      SM_CHECK(receive.count == size * send.count, name + ": receive must hold as many parts as there are ranks");
      break;
    case Operation::all_to_all:
      SM_CHECK(send.count == receive.count && send.count % size == 0,
               name + ": send and receive must hold equally many parts, one a rank");
      break;
    case Operation::send_receive:
      SM_CHECK(send.count == receive.count, name + ": send and receive must hold equally many elements");
      SM_CHECK(root >= 0 && root < size, name + ": root, the places ahead, must be from 0 to the group's size - 1");
      break;
    case Operation::broadcast: SM_CHECK(root >= 0 && root < size, name + ": root is not a rank of the group"); break;
    case Operation::all_reduce:
    case Operation::barrier: break;
  }
}

void Communicator::read(void* into, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    std::memcpy(into, from, bytes);
  }
}

/// What runs there ends by itself: a communicator that holds it back has its own.
void Communicator::follow(device::Event& event) {
  while (!event.complete()) {
    std::this_thread::yield();
  }
}

void Pending::wait() {
  if (communicator_ != nullptr) {
    communicator_->wait(ticket_);
  }
}

bool Pending::done() {
  return communicator_ == nullptr || communicator_->test(ticket_);
}

Pending Communicator::all_reduce(Buffer buffer, Purpose purpose, std::int64_t tag, SumOrder order, Reduction reduction) {
  Collective collective;
  collective.operation = Operation::all_reduce;
  collective.reduction = reduction;
  collective.order = order;
  collective.receive = buffer;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::reduce_scatter(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag, SumOrder order) {
  Collective collective;
  collective.operation = Operation::reduce_scatter;
  collective.order = order;
  collective.send = send;
  collective.receive = receive;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::all_gather(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag) {
  Collective collective;
  collective.operation = Operation::all_gather;
  collective.send = send;
  collective.receive = receive;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::broadcast(Buffer buffer, int root, Purpose purpose, std::int64_t tag) {
  Collective collective;
  collective.operation = Operation::broadcast;
  collective.receive = buffer;
  collective.root = root;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::all_to_all(Buffer send, Buffer receive, Purpose purpose, std::int64_t tag) {
  Collective collective;
  collective.operation = Operation::all_to_all;
  collective.send = send;
  collective.receive = receive;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::send_receive(Buffer send, Buffer receive, int ahead, Purpose purpose, std::int64_t tag) {
  Collective collective;
  collective.operation = Operation::send_receive;
  collective.send = send;
  collective.receive = receive;
  collective.root = ahead;
  collective.purpose = purpose;
  collective.tag = tag;
  return {this, start(collective)};
}

Pending Communicator::barrier(std::int64_t tag) {
  Collective collective;
  collective.tag = tag;
  return {this, start(collective)};
}

}  // namespace shardmark::comm

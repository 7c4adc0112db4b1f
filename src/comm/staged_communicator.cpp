#include "comm/staged_communicator.hpp"

#include <utility>

#include "base/error.hpp"

namespace shardmark::comm {
namespace {

/// The device's own work ends whatever other ranks do.
void no_poll(std::int64_t /*turn*/) {}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host, device::Device& device)
    : host_(std::move(host)), device_(device) {}

Buffer StagedCommunicator::staged(const Buffer& buffer, std::unique_ptr<device::Memory>& memory) {
  const auto bytes = static_cast<std::size_t>(buffer.bytes());
  if (bytes > 0 && (!memory || memory->bytes() < bytes)) {
    memory = device_.allocate_pinned(bytes);
  }
  return host_buffer(bytes == 0 ? nullptr : memory->data(), buffer.count, buffer.dtype);
}

Ticket StagedCommunicator::start(const Collective& collective) {
  check_shape(collective, size());
  Collective on_host = collective;
  const bool moves = collective.operation != Operation::barrier && collective.receive.place == Place::device;
  if (moves) {
    on_host.send = staged(collective.send, sent_);
    on_host.receive = staged(collective.receive, received_);
    const bool in_place = collective.operation == Operation::all_reduce || collective.operation == Operation::broadcast;
    const Buffer& from = in_place ? collective.receive : collective.send;
    device_.read(in_place ? on_host.receive.data : on_host.send.data, from.data, static_cast<std::size_t>(from.bytes()),
                 no_poll);
  } else {
    device_.synchronize(no_poll);
  }
  host_->wait(host_->start(on_host));
  if (moves) {
    device_.write(collective.receive.data, on_host.receive.data, static_cast<std::size_t>(collective.receive.bytes()), no_poll);
  }
  return ++issued_;
}

bool StagedCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name() + " never gave");
  return true;
}

void StagedCommunicator::wait(Ticket ticket) {
  static_cast<void>(test(ticket));
}

void StagedCommunicator::read(void* into, const void* from, std::size_t bytes) {
  device_.read(into, from, bytes, no_poll);
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, const std::string& name) {
  return std::make_unique<StagedCommunicator>(host_->split(color, name), device_);
}

}  // namespace shardmark::comm

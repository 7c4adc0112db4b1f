#include "comm/nccl_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "world/world.hpp"

namespace shardmark::comm {
namespace {

/// The deadline of a world for a while.
class Deadline {
 public:
  Deadline(world::World& world, double seconds) : world_(world), before_s_(world.deadline_s()) {
    world.set_deadline_s(seconds);
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline() { world_.set_deadline_s(before_s_); }

 private:
  world::World& world_;
  double before_s_;
};

device::Poll init_poll(world::World& world, NcclFamily& family, const char* what) {
  return [&world, &family, what, started_s = base::now_s()](std::int64_t turn) {
    family.give_sign();
    world.poll(turn, started_s, {.operation = what, .purpose = "control"});
  };
}

constexpr std::int64_t kTurnsPerLook = 256;

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host, world::World& world, device::Device& device,
                                   std::string name, double init_deadline_s)
    : host_(std::move(host)),
      world_(world),
      device_(device),
      name_(std::move(name)),
      family_(std::make_shared<NcclFamily>(device, world.deadline_s())),
      init_deadline_s_(init_deadline_s) {
  make_stream();
  const Deadline deadline(world_, init_deadline_s_);
  handle_ = std::make_unique<NcclHandle>(*host_, who(), init_poll(world_, *family_, "nccl_init"));
  join_family();
}

NcclCommunicator::NcclCommunicator(Parts parts, NcclCommunicator& parent, int color)
    : host_(std::move(parts.host)),
      world_(parent.world_),
      device_(parent.device_),
      name_(std::move(parts.name)),
      family_(std::move(parts.family)),
      init_deadline_s_(parent.init_deadline_s_) {
  make_stream();
  const Deadline deadline(world_, init_deadline_s_);
  handle_ =
      std::make_unique<NcclHandle>(*parent.handle_, color, parent.rank(), who(), init_poll(world_, *family_, "nccl_split"));
  join_family();
}

NcclCommunicator::~NcclCommunicator() {
  family_->remove(member_);
  if (family_->broken() || !flights_.empty()) {
    handle_->abort();
  }
  handle_.reset();
}

void NcclCommunicator::make_stream() {
  // Small gathers and sums hold whole layers back: they go before computation.
  stream_ = device_.make_stream(device::Priority::high);
  ready_ = device_.make_event();
}

std::string NcclCommunicator::who() const {
  return fmt::format("rank {} of {} on {}", host_->rank(), name_, world_.host());
}

void NcclCommunicator::join_family() {
  member_.who = who();
  member_.handle = handle_.get();
  family_->add(member_);
}

template <typename Step>
void NcclCommunicator::guarded(const Step& step) {
  const NcclFamily::Visit visit(*family_, name_, world_.deadline_s());
  try {
    step();
  } catch (...) {
    if (std::exchange(together_, false)) {
      static_cast<void>(ncclGroupEnd());  // an abort is no part of the group
    }
    family_->abort();
    throw;
  }
}

void NcclCommunicator::poll(std::int64_t turn) {
  if (turn % kTurnsPerLook == 0) {
    family_->give_sign();
    family_->check_async();
  }
  world_.poll(turn, wait_started_s_, wait_info(waited_, waited_ticket_));
}

device::Poll NcclCommunicator::poller(const Collective& collective, Ticket ticket) {
  waited_ = collective;
  waited_ticket_ = ticket;
  wait_started_s_ = base::now_s();
  return [this](std::int64_t turn) { poll(turn); };
}

void NcclCommunicator::check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) {
    handle_->check(result, call, poller(waited_, issued_ + 1));
  }
}

device::Event* NcclCommunicator::take_event() {
  if (free_events_.empty()) {
    events_.push_back(device_.make_event());
    return events_.back().get();
  }
  device::Event* event = free_events_.back();
  free_events_.pop_back();
  return event;
}

Ticket NcclCommunicator::start(const Collective& collective) {
  check_shape(collective, size());
  Flight flight{collective};
  guarded([&] {
    if (collective.operation == Operation::barrier) {
      device_.synchronize(poller(collective, issued_ + 1));
      host_->barrier(collective.tag).wait();
    } else if (collective.receive.place == Place::host) {
      host_->wait(host_->start(collective));
    } else {
      waited_ = collective;
      handle_->check_async();
      device_.compute().record(*ready_);
      stream_->wait(*ready_, {});
      enqueue(collective);
      flight.done = take_event();
      if (!together_) {
        record(flight, issued_ + 1);
      }
    }
  });
  num_together_ += together_ ? 1U : 0U;
  flights_.push_back(flight);
  return ++issued_;
}

void NcclCommunicator::begin_together() {
  SM_CHECK(!together_, "groups of collectives do not nest");
  guarded([&] { check(ncclGroupStart(), "ncclGroupStart"); });
  together_ = true;
  num_together_ = 0;
}

void NcclCommunicator::end_together() {
  together_ = false;
  guarded([&] {
    check(ncclGroupEnd(), "ncclGroupEnd");
    for (std::size_t i = flights_.size() - num_together_; i < flights_.size(); ++i) {
      if (flights_[i].done != nullptr) {
        record(flights_[i], completed_ + static_cast<Ticket>(i) + 1);
      }
    }
  });
}

void NcclCommunicator::record(const Flight& flight, Ticket ticket) {
  stream_->record(*flight.done);
  member_.newest = flight.done;
  member_.collective = flight.collective;
  member_.ticket = ticket;
}

void NcclCommunicator::retire(Ticket through) {
  while (completed_ < through) {
    if (flights_.front().done != nullptr) {
      free_events_.push_back(flights_.front().done);
    }
    flights_.pop_front();
    ++completed_;
  }
}

bool NcclCommunicator::test(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name_ + " never gave");
  if (ticket <= completed_) {
    return true;
  }
  // Its event stays taken until someone waits: else the number of events would depend on how far the device happens to be.
  auto* done = flights_[static_cast<std::size_t>(ticket - completed_ - 1)].done;
  return done == nullptr || done->complete();
}

void NcclCommunicator::wait(Ticket ticket) {
  SM_CHECK(ticket <= issued_, "a ticket that communicator " + name_ + " never gave");
  if (ticket <= completed_) {
    return;
  }
  Flight& flight = flights_[static_cast<std::size_t>(ticket - completed_ - 1)];
  if (flight.done != nullptr) {
    guarded([&] { device_.compute().wait(*flight.done, poller(flight.collective, ticket)); });
  }
  retire(ticket);
}

void NcclCommunicator::progress() {
  if (!flights_.empty()) {
    guarded([&] { handle_->check_async(); });
  }
}

void NcclCommunicator::read(void* into, const void* from, std::size_t bytes) {
  guarded([&] {
    Collective reading;
    reading.receive = {into, static_cast<std::int64_t>(bytes), base::DType::uint8, Place::host};
    device_.read(into, from, bytes, poller(reading, issued_));
  });
}

void NcclCommunicator::follow(device::Event& event) {
  guarded([&] {
    const auto look = poller(member_.collective, member_.ticket);
    for (std::int64_t turn = 0; !event.complete(); ++turn) {
      look(turn);
    }
  });
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, const std::string& name) {
  SM_CHECK(color >= 0, "a color is a number from 0 up");
  std::unique_ptr<Communicator> made;
  guarded([&] {
    // A split is NCCL's own collective: nothing may be under way on its parent.
    device_.synchronize(poller({}, issued_));
    auto host = host_->split(color, name);
    made.reset(new NcclCommunicator({std::move(host), name, family_}, *this, color));
  });
  return made;
}

}  // namespace shardmark::comm

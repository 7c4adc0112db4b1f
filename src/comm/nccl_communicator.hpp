#pragma once
// Collectives between devices by NCCL: each communicator has a stream of its own, tied to the computation by events, so that
// the host only enqueues. Host memory goes over a communicator of host memory beside it, and at once.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/nccl_family.hpp"
#include "comm/nccl_handle.hpp"
#include "comm/ring.hpp"
#include "device/device.hpp"

namespace shardmark::world {
class World;
}

namespace shardmark::comm {

class NcclCommunicator final : public Communicator {
 public:
  /// Collective over `host`, whose ranks in their order become the group. World and device are lent. Throws NcclError (exit 5
  /// if NCCL refuses the devices), DeadlineError after `init_deadline_s`.
  NcclCommunicator(std::unique_ptr<Communicator> host, world::World& world, device::Device& device, std::string name,
                   double init_deadline_s);
  ~NcclCommunicator() override;

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  [[nodiscard]] const std::string& name() const override { return name_; }
  /// Enqueues after the computation enqueued so far. A barrier makes the host wait for both, the device and the other hosts.
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  /// Computation enqueued later waits; the host does not, unless computation runs in it.
  void wait(Ticket ticket) override;
  /// Looks for failures only.
  void progress() override;
  [[nodiscard]] bool runs_by_itself() const override { return true; }
  [[nodiscard]] bool needs_one_order() const override { return true; }
  void read(void* into, const void* from, std::size_t bytes) override;
  /// Collectives between them leave in one group call.
  void begin_together() override;
  void end_together() override;
  void follow(device::Event& event) override;
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

 private:
  struct Flight {
    Collective collective;
    device::Event* done = nullptr;  // nullptr: complete already
  };
  struct Parts {
    std::unique_ptr<Communicator> host;
    std::string name;
    std::shared_ptr<NcclFamily> family;
  };

  NcclCommunicator(Parts parts, NcclCommunicator& parent, int color);

  void make_stream();
  [[nodiscard]] std::string who() const;
  void join_family();
  /// Runs `step` within a visit; whatever it throws, all communicators of the family are aborted before it goes on.
  template <typename Step>
  void guarded(const Step& step);
  void poll(std::int64_t turn);
  [[nodiscard]] device::Poll poller(const Collective& collective, Ticket ticket);
  void enqueue(const Collective& collective);
  void enqueue_ordered(const Collective& collective);
  void exchange_parts(const Collective& collective, std::byte* into);
  [[nodiscard]] void* staging(std::size_t bytes);
  /// Calls that NCCL takes together.
  template <typename Calls>
  void together(const Calls& calls);
  void check(ncclResult_t result, const char* call);
  [[nodiscard]] bool is_ordered(const Collective& collective) const;
  /// Marks the end of what was enqueued for it.
  void record(const Flight& flight, Ticket ticket);
  void retire(Ticket through);
  [[nodiscard]] device::Event* take_event();

  std::unique_ptr<Communicator> host_;
  world::World& world_;
  device::Device& device_;
  std::string name_;
  std::shared_ptr<NcclFamily> family_;
  double init_deadline_s_ = 0;
  std::vector<std::unique_ptr<device::Event>> events_;
  std::vector<device::Event*> free_events_;
  std::unique_ptr<device::Event> ready_;                  // computation so far
  std::vector<std::unique_ptr<device::Memory>> staging_;  // the last is the one in use, the others may still be read
  std::unique_ptr<device::Stream> stream_;                // before events and memory go, its work ends
  std::unique_ptr<NcclHandle> handle_;
  NcclMember member_;
  Ring<Flight> flights_;  // not waited for; the front has ticket completed_ + 1
  Ticket issued_ = 0;
  Ticket completed_ = 0;
  bool together_ = false;
  std::size_t num_together_ = 0;
  // What a wait under way is for.
  double wait_started_s_ = 0;
  Collective waited_;
  Ticket waited_ticket_ = 0;
};

}  // namespace shardmark::comm

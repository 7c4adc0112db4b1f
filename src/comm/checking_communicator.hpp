#pragma once
// A decorator: no collective is started before all ranks agreed that they mean the same one. A mismatch, also of a rank
// that left one out, is a MismatchError on every rank instead of a hang or of wrong numbers. Here faults of kind
// "mismatch" are planted, too.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/ring.hpp"

namespace shardmark::comm {

struct CheckingOptions {
  bool verify = true;                 // false: only plants faults
  base::FaultPlan* faults = nullptr;  // lent for the communicator's life
};

class CheckingCommunicator final : public Communicator {
 public:
  /// `agreement` spans the same ranks in the same order as `inner`.
  CheckingCommunicator(std::unique_ptr<Communicator> inner, CommHandle agreement, const CheckingOptions& options);
  ~CheckingCommunicator() override;

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  /// Sends this rank's description and returns; the collective itself starts in a later call, once all have agreed.
  [[nodiscard]] Ticket start(const Collective& collective) override;
  [[nodiscard]] bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void progress() override;
  [[nodiscard]] bool runs_by_itself() const override { return inner_->runs_by_itself(); }
  [[nodiscard]] bool needs_one_order() const override { return inner_->needs_one_order(); }
  void read(void* into, const void* from, std::size_t bytes) override { inner_->read(into, from, bytes); }
  void follow(device::Event& event) override { inner_->follow(event); }
  void begin_together() override { inner_->begin_together(); }
  void end_together() override { inner_->end_together(); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override;

  /// The training step that faults count by, here and in all that are split from this. Until it is set they count collectives
  /// of purpose gradient.
  void set_step(std::int64_t step) { *step_ = step; }

 private:
  struct Entry {
    Collective collective;
    Ticket inner = 0;        // once forwarded
    bool skipped = false;    // by a planted fault
    std::int64_t place = 0;  // among all that the family started
  };
  /// This one and all that are split from the same first one.
  struct Family {
    std::vector<CheckingCommunicator*> members;
    std::int64_t num_started = 0;
    std::int64_t num_forwarded = 0;
  };
  /// Plants what is due; true if the collective is to be left out.
  [[nodiscard]] bool plant(Collective& collective);
  void forward_agreed();
  /// A rank that waits on one communicator still compares what it started on the others: else a mismatch there would end as a
  /// deadline here.
  void progress_others();
  void retire_complete();
  /// After a mismatch: the collectives that all agreed on are finished, so that their buffers may be freed.
  void finish_forwarded() noexcept;

  std::unique_ptr<Communicator> inner_;
  Agreement agreement_;
  CheckingOptions options_;
  std::shared_ptr<std::int64_t> step_ = std::make_shared<std::int64_t>(-1);
  std::shared_ptr<Family> family_ = std::make_shared<Family>();
  std::int64_t num_gradient_ = 0;
  Ring<Entry> queue_;  // started and not complete; its front has ticket completed_ + 1
  std::size_t num_forwarded_ = 0;
  std::int64_t num_described_ = 0;
  Ticket issued_ = 0;
  Ticket completed_ = 0;
  bool broken_ = false;
};

}  // namespace shardmark::comm

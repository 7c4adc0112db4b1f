#include "optim/offloaded_optimizer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "device/memory_ledger.hpp"

namespace shardmark::optim {
namespace {

// One range is copied in, one updated, one copied out.
constexpr std::size_t kSlots = 3;

std::size_t slots_for(std::size_t ranges) {
  return std::min(kSlots, ranges);
}

class OffloadedOptimizer final : public Optimizer {
 public:
  OffloadedOptimizer(std::unique_ptr<Optimizer> rule, std::unique_ptr<device::CopyQueue> queue)
      : rule_(std::move(rule)), queue_(std::move(queue)) {}

  void bind(std::vector<Range> ranges, std::vector<std::vector<at::Tensor>> states) override {
    release();
    for (const auto& range : ranges) {
      SM_CHECK(range.parameters.is_contiguous() && range.gradients.is_contiguous() &&
                   range.parameters.scalar_type() == ranges.front().parameters.scalar_type() &&
                   range.gradients.scalar_type() == ranges.front().gradients.scalar_type(),
               "ranges that share staging memory are contiguous and of equal types");
    }
    allocate_slots(ranges);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      ranges_.push_back({ranges[i].parameters, ranges[i].gradients, {}, {}, {}});
      const auto& slot = slots_[i % slots_.size()];
      ranges[i].parameters = ranges_[i].staged = slot.parameters.narrow(0, 0, ranges_[i].parameters.numel());
      ranges[i].gradients = slot.gradients.narrow(0, 0, ranges_[i].gradients.numel());
    }
    rule_->bind(std::move(ranges), std::move(states));
  }
  void unbind() override {
    rule_->unbind();
    release();
  }
  void relayout(const std::vector<RangeLayout>& ranges, const std::vector<StateMove>& moves) override {
    rule_->relayout(ranges, moves);
  }

  void begin_step() override {
    for (std::size_t range = 0; range < ranges_.size(); ++range) {
      finish(range);
    }
    rule_->begin_step();
  }
  void update(std::size_t range, double lr, float coefficient) override {
    copy_in(range);  // under way already but for the first of a step
    if (range + 1 < ranges_.size()) {
      copy_in(range + 1);
    }
    auto& mine = ranges_[range];
    wait(mine.in);
    rule_->update(range, lr, coefficient);
    mine.out.push_back(queue_->start(mine.parameters.data_ptr(), mine.staged.const_data_ptr(), mine.parameters.nbytes()));
  }
  void finish(std::size_t range) override { wait(ranges_[range].out); }
  [[nodiscard]] std::size_t lag() const override { return 1; }

  [[nodiscard]] const std::vector<std::string>& state_names() const override { return rule_->state_names(); }
  [[nodiscard]] const std::vector<std::vector<at::Tensor>>& states() const override { return rule_->states(); }
  [[nodiscard]] std::int64_t state_bytes(const RangeLayout& range) const override { return rule_->state_bytes(range); }
  [[nodiscard]] device::CategoryBytes persistent_bytes(const std::vector<RangeLayout>& ranges, base::DType parameters,
                                                       base::DType gradients) const override {
    std::int64_t states = 0;
    std::int64_t largest = 0;
    for (const auto& range : ranges) {
      states += rule_->state_bytes(range);
      largest = std::max(largest, range.numel);
    }
    const auto width = static_cast<std::int64_t>(base::size_of(parameters) + base::size_of(gradients));
    device::CategoryBytes bytes{};
    bytes[static_cast<std::size_t>(device::MemoryCategory::offloaded)] =
        states + static_cast<std::int64_t>(slots_for(ranges.size())) * largest * width;
    return bytes;
  }
  [[nodiscard]] std::int64_t small_below() const override { return rule_->small_below(); }
  [[nodiscard]] std::int64_t steps() const override { return rule_->steps(); }

 private:
  using Tickets = std::vector<device::CopyTicket>;  // of copies under way

  /// Where a range rests, and the copies of it.
  struct Resting {
    at::Tensor parameters;
    at::Tensor gradients;
    at::Tensor staged;  // its parameters in a slot
    Tickets in;
    Tickets out;
  };
  /// Host memory as large as the largest range.
  struct Slot {
    at::Tensor parameters;
    at::Tensor gradients;
  };

  /// Changes nothing if memory is refused, or cannot be lent.
  void allocate_slots(const std::vector<Range>& ranges) {
    if (ranges.empty()) {
      return;
    }
    std::int64_t largest = 0;
    for (const auto& range : ranges) {
      largest = std::max(largest, range.parameters.numel());
    }
    const auto count = static_cast<std::int64_t>(slots_for(ranges.size()));
    const std::array kinds{ranges.front().parameters.scalar_type(), ranges.front().gradients.scalar_type()};
    const auto width = static_cast<std::int64_t>(c10::elementSize(kinds[0]) + c10::elementSize(kinds[1]));
    at::Tensor staging;
    {
      const device::MemoryScope scope(device::MemoryCategory::offloaded);
      staging = at::zeros({count * largest * width}, at::kByte);
    }
    if (staging.numel() > 0) {
      queue_->lend(staging.data_ptr(), staging.nbytes());
    }
    staging_ = std::move(staging);  // what is here was lent
    // One piece, so that no two that are lent share a page: first what is wider, then all is aligned.
    slots_.resize(static_cast<std::size_t>(count));
    std::int64_t begin = 0;
    for (const bool parameters :
         {c10::elementSize(kinds[0]) >= c10::elementSize(kinds[1]), c10::elementSize(kinds[0]) < c10::elementSize(kinds[1])}) {
      const auto kind = kinds[parameters ? 0 : 1];
      const auto bytes = largest * static_cast<std::int64_t>(c10::elementSize(kind));
      for (auto& slot : slots_) {
        (parameters ? slot.parameters : slot.gradients) = staging_.narrow(0, begin, bytes).view(kind);
        begin += bytes;
      }
    }
  }
  void release() {
    for (std::size_t range = 0; range < ranges_.size(); ++range) {
      finish(range);
    }
    ranges_.clear();
    slots_.clear();
    const at::Tensor staging = std::exchange(staging_, at::Tensor());
    if (staging.defined() && staging.numel() > 0) {
      queue_->take_back(staging.data_ptr());
    }
  }

  void copy_in(std::size_t range) {
    auto& mine = ranges_[range];
    if (!mine.in.empty()) {
      return;
    }
    if (range >= slots_.size()) {
      finish(range - slots_.size());  // which had this slot before
    }
    const auto& slot = slots_[range % slots_.size()];
    mine.in.push_back(queue_->start(slot.parameters.data_ptr(), mine.parameters.const_data_ptr(), mine.parameters.nbytes()));
    mine.in.push_back(queue_->start(slot.gradients.data_ptr(), mine.gradients.const_data_ptr(), mine.gradients.nbytes()));
  }
  void wait(Tickets& tickets) {
    for (const auto ticket : tickets) {
      queue_->wait(ticket);
    }
    tickets.clear();
  }

  std::unique_ptr<Optimizer> rule_;
  std::vector<Resting> ranges_;
  at::Tensor staging_;  // the memory of all slots
  std::vector<Slot> slots_;
  std::unique_ptr<device::CopyQueue> queue_;  // goes first: copies under way use what stands above
};

}  // namespace

std::unique_ptr<Optimizer> make_offloaded(std::unique_ptr<Optimizer> rule, std::unique_ptr<device::CopyQueue> queue) {
  return std::make_unique<OffloadedOptimizer>(std::move(rule), std::move(queue));
}

}  // namespace shardmark::optim

#include "device/host_device.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace shardmark::device {
namespace {

/// Counts records and completions: a wait is for the number of records at its start.
class HostEvent final : public Event {
 public:
  [[nodiscard]] bool complete() override { return reached(recorded()); }

  [[nodiscard]] std::int64_t start_record() { return recorded_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] std::int64_t recorded() const { return recorded_.load(std::memory_order_relaxed); }
  void reach(std::int64_t record) {
    reached_s_ = base::now_s();
    reached_.store(record, std::memory_order_release);
  }
  [[nodiscard]] bool reached(std::int64_t record) const { return reached_.load(std::memory_order_acquire) >= record; }
  [[nodiscard]] double reached_s() const { return reached_s_; }

 private:
  std::atomic<std::int64_t> recorded_{0};
  std::atomic<std::int64_t> reached_{0};
  double reached_s_ = 0;  // written before, read after `reached_`
};

HostEvent& host(Event& event) {
  return dynamic_cast<HostEvent&>(event);
}

/// The calling thread's own computation: done when it was asked for.
class CallerStream final : public Stream {
 public:
  void record(Event& event) override {
    auto& mine = host(event);
    mine.reach(mine.start_record());
  }
  void wait(Event& event, const Poll& poll) override {
    auto& mine = host(event);
    const std::int64_t record = mine.recorded();
    for (std::int64_t turn = 0; !mine.reached(record); ++turn) {
      poll(turn);
      std::this_thread::yield();  // the stream's thread may wait for this core
    }
  }
  [[nodiscard]] void* handle() override { return nullptr; }
  [[nodiscard]] bool on_host() const override { return true; }
};

class HostMemory final : public Memory {
 public:
  explicit HostMemory(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] void* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return memory_.size(); }

 private:
  std::vector<std::byte> memory_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(bool asynchronous) : asynchronous_(asynchronous) {}
  [[nodiscard]] int cuda_index() const override { return -1; }
  [[nodiscard]] bool asynchronous() const override { return asynchronous_; }
  [[nodiscard]] Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(Priority /*priority*/) override { return std::make_unique<HostStream>(); }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  [[nodiscard]] double seconds_between(Event& from, Event& to) override {
    SM_CHECK(from.complete() && to.complete(), "the time between events that are not complete");
    return host(to).reached_s() - host(from).reached_s();
  }
  [[nodiscard]] std::unique_ptr<Memory> allocate(std::size_t bytes) override { return std::make_unique<HostMemory>(bytes); }
  [[nodiscard]] std::unique_ptr<Memory> allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void read(void* into, const void* from, std::size_t bytes, const Poll& /*poll*/) override {
    if (bytes > 0) {
      std::memcpy(into, from, bytes);
    }
  }
  void write(void* into, const void* from, std::size_t bytes, const Poll& poll) override { read(into, from, bytes, poll); }
  void synchronize(const Poll& /*poll*/) override {}

 private:
  bool asynchronous_;
  CallerStream compute_;
};

}  // namespace

HostStream::HostStream() : thread_([this](const std::stop_token& stopping) { run(stopping); }) {}

HostStream::~HostStream() = default;

void HostStream::enqueue(Work work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  arrived_.notify_one();
}

void HostStream::run(const std::stop_token& stopping) {
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      if (!arrived_.wait(lock, stopping, [this] { return !queue_.empty(); }) || stopping.stop_requested()) {
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work(stopping);
  }
}

void HostStream::record(Event& event) {
  auto& mine = host(event);
  const std::int64_t record = mine.start_record();
  enqueue([&mine, record](const std::stop_token& /*stopping*/) { mine.reach(record); });
}

void HostStream::wait(Event& event, const Poll& /*poll*/) {
  auto& mine = host(event);
  const std::int64_t record = mine.recorded();
  if (mine.reached(record)) {
    return;
  }
  enqueue([&mine, record](const std::stop_token& stopping) {
    while (!mine.reached(record) && !stopping.stop_requested()) {
      std::this_thread::yield();
    }
  });
}

std::unique_ptr<Device> make_host_device(bool asynchronous) {
  return std::make_unique<HostDevice>(asynchronous);
}

}  // namespace shardmark::device

#pragma once
// Where training runs: a CUDA device, or host memory. Streams of work, events between them, memory, and the one way in which
// the host reads results. Two implementations: cuda_device.cpp, and host_device.hpp, whose streams are threads, so that what
// works on streams is tested where there is no device. Knows nothing of tensors or ranks.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace shardmark::device {

/// Called over and over while the host waits, with the number of the turn; throws to end the wait.
using Poll = std::function<void(std::int64_t turn)>;

enum class Priority : std::uint8_t { normal, high };

/// A point in a stream's work. May be recorded again: who waits for it waits for what was recorded before the wait began.
class Event {
 public:
  virtual ~Event() = default;
  /// Never blocks; true before the first record. Throws CudaError if the device failed.
  [[nodiscard]] virtual bool complete() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event& event) = 0;
  /// What is enqueued later starts after the event's work. The host goes on at once. But where the stream's work runs in the
  /// calling thread, as all computation in host memory does, that thread waits here and calls `poll`.
  virtual void wait(Event& event, const Poll& poll) = 0;
  /// A cudaStream_t, or a HostStream* where `on_host`.
  [[nodiscard]] virtual void* handle() = 0;
  [[nodiscard]] virtual bool on_host() const = 0;
};

/// Device or pinned host memory; freed by the destructor.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual void* data() = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  /// Of the CUDA device, or -1 for host memory.
  [[nodiscard]] virtual int cuda_index() const = 0;
  /// Whether work goes on after a call returns: then what it computes is known to the host by `read` only.
  [[nodiscard]] virtual bool asynchronous() const = 0;
  /// The stream on which the calling thread computes.
  [[nodiscard]] virtual Stream& compute() = 0;
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(Priority priority) = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
  /// Seconds between two recorded and complete events of this device.
  [[nodiscard]] virtual double seconds_between(Event& from, Event& to) = 0;
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate(std::size_t bytes) = 0;
  /// Host memory that copies of the device reach without a stage between.
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate_pinned(std::size_t bytes) = 0;
  /// Waits, with `poll`, until everything enqueued for computation so far is done, and copies from its memory to the host's.
  /// A host synchronisation: not within a step.
  virtual void read(void* into, const void* from, std::size_t bytes, const Poll& poll) = 0;
  /// The other way: from the host's memory into the device's, after what is enqueued so far.
  virtual void write(void* into, const void* from, std::size_t bytes, const Poll& poll) = 0;
  /// As `read`, of nothing.
  virtual void synchronize(const Poll& poll) = 0;
  /// Before another thread than the maker's looks at events.
  virtual void enter_thread() {}
};

}  // namespace shardmark::device

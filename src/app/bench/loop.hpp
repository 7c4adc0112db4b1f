#pragma once
// The loop that is timed. Alone, so that a benchmark can hold it against a plain loop (tests/micro/comm_loops.cpp).

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "comm/communicator.hpp"
#include "device/device.hpp"

namespace shardmark::app::bench {

/// Seconds of each of `times_s.size()` calls on this rank. Collective over the communicator. One reading of the clock a call:
/// a call ends where the next begins.
inline void time_calls(comm::Communicator& communicator, const comm::Collective& collective, std::vector<double>& times_s) {
  double before_s = base::now_s();
  for (double& time_s : times_s) {
    communicator.wait(communicator.start(collective));
    const double after_s = base::now_s();
    time_s = after_s - before_s;
    before_s = after_s;
  }
}

/// Returns when a device has done what it was asked for. Nothing where operations end in `wait`.
inline void end_of_device_work(comm::Communicator& communicator) {
  communicator.read(nullptr, nullptr, 0);
}

/// The same where calls return at once: seconds between events on the stream that the calls hold back, one after each call.
inline void time_calls_on_device(device::Device& device, comm::Communicator& communicator, const comm::Collective& collective,
                                 std::vector<double>& times_s) {
  std::vector<std::unique_ptr<device::Event>> marks;
  for (std::size_t i = 0; i <= times_s.size(); ++i) {
    marks.push_back(device.make_event());
  }
  device.compute().record(*marks.front());
  for (std::size_t i = 0; i < times_s.size(); ++i) {
    communicator.wait(communicator.start(collective));
    device.compute().record(*marks[i + 1]);
  }
  end_of_device_work(communicator);
  for (std::size_t i = 0; i < times_s.size(); ++i) {
    times_s[i] = device.seconds_between(*marks[i], *marks[i + 1]);
  }
}

}  // namespace shardmark::app::bench

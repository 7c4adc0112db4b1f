#pragma once
// NcclCommunicators over the double, for the tests of this folder.

#include <memory>
#include <string>
#include <utility>

#include "comm/mpi_communicator.hpp"
#include "comm/nccl_communicator.hpp"
#include "device/host_device.hpp"
#include "tests/support/nccl_double.hpp"
#include "tests/support/rank_data.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {

inline std::unique_ptr<comm::Communicator> make_host_side() {
  return std::make_unique<comm::MpiCommunicator>(comm::CommHandle::duplicate(test_world()), "world", comm::MpiOptions{});
}

/// Collective. A fresh communicator over all ranks of the test, on a device that the test lends.
inline std::unique_ptr<comm::NcclCommunicator> make_nccl(device::Device& device, double init_deadline_s = 30) {
  return std::make_unique<comm::NcclCommunicator>(make_host_side(), test_world(), device, "world", init_deadline_s);
}

}  // namespace shardmark::testing

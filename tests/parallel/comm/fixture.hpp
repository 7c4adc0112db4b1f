#pragma once
// Communicators for the tests of this folder.

#include <memory>
#include <string>

#include "comm/checking_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "tests/support/rank_data.hpp"
#include "tests/support/ranks.hpp"

namespace shardmark::testing {

/// Collective. A fresh communicator over all ranks of the test.
inline std::unique_ptr<comm::MpiCommunicator> make_mpi(const comm::MpiOptions& options = {}) {
  return std::make_unique<comm::MpiCommunicator>(comm::CommHandle::duplicate(test_world()), "world", options);
}

inline std::unique_ptr<comm::CheckingCommunicator> make_checked(const comm::CheckingOptions& options = {}) {
  return std::make_unique<comm::CheckingCommunicator>(make_mpi(), comm::CommHandle::duplicate(test_world()), options);
}

}  // namespace shardmark::testing

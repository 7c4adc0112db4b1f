#pragma once
// Waits that say what a collective was for: a communicator knows an operation, who started it knows what is in the buffers.

#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace shardmark::comm {

/// As Pending::wait. A DeadlineError, or what a signal throws, is told with `what()` before its message.
void wait_for(Pending& pending, const std::function<std::string()>& what);

}  // namespace shardmark::comm

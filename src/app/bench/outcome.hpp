#pragma once
// What a measurement comes to.

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace shardmark::app::bench {

/// What rank 0 has to tell in the end; elsewhere of no use.
struct Outcome {
  std::int64_t num_rows = 0;
  std::string verdict;
  base::ExitCode code = base::ExitCode::good;
};

}  // namespace shardmark::app::bench

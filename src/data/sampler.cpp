#include "data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::data {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  std::vector<std::string> problems;
  if (options.num_rows < 1) {
    problems.push_back(fmt::format("the data has {} rows: at least one is needed", options.num_rows));
  }
  if (options.global_batch < 1) {
    problems.push_back(fmt::format("data.global_batch = {}: a positive number of rows is needed", options.global_batch));
  }
  if (!problems.empty()) {
    throw base::ConfigError(problems);
  }
  // Without adding them up first: both may be near the largest number.
  steps_per_epoch_ = options.num_rows / options.global_batch + (options.num_rows % options.global_batch != 0 ? 1 : 0);
}

std::int64_t Sampler::real_rows(std::int64_t step) const noexcept {
  const std::int64_t first = (step % steps_per_epoch_) * options_.global_batch;
  return std::min(options_.global_batch, options_.num_rows - first);
}

void Sampler::rows_of(std::int64_t step, std::int64_t first_slot, std::span<std::int64_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  SM_CHECK(step >= 0 && first_slot >= 0 && count <= options_.global_batch && first_slot <= options_.global_batch - count,
           fmt::format("slots [{}, {} + {}) of step {} lie outside the global batch of {}", first_slot, first_slot, count, step,
                       options_.global_batch));
  const base::RandomPermutation order(options_.seed, static_cast<std::uint64_t>(epoch_of(step)), options_.num_rows);
  const std::int64_t first = (step % steps_per_epoch_) * options_.global_batch + first_slot;
  for (std::int64_t slot = 0; slot < count; ++slot) {
    const std::int64_t position = first + slot;
    std::int64_t row = -1;
    if (position < options_.num_rows) {
      row = options_.shuffle ? order(position) : position;
    }
    out[static_cast<std::size_t>(slot)] = row;
  }
}

}  // namespace shardmark::data

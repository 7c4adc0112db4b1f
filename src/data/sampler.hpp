#pragma once
// Which row of the data fills which slot of which step's global batch: a pure function of (rows, global batch, shuffle,
// seed, step), so it is the same for every rank count and technique. Knows nothing of ranks or of what rows hold.

#include <cstdint>
#include <span>

namespace shardmark::data {

struct SamplerOptions {
  std::int64_t num_rows = 0;
  std::int64_t global_batch = 0;  // rows of one optimizer step over all ranks
  bool shuffle = true;
  std::uint64_t seed = 0;
};

/// An epoch is ceil(num_rows / global_batch) steps; each row comes once in it, in file order or in an order drawn anew for
/// every epoch. Slots of the last step that no row is left for hold -1: fillers of weight 0 that count nowhere.
class Sampler {
 public:
  /// Throws ConfigError if there are no rows or the batch is not positive.
  explicit Sampler(const SamplerOptions& options);

  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  [[nodiscard]] std::int64_t epoch_of(std::int64_t step) const noexcept { return step / steps_per_epoch_; }
  /// Slots of the step that hold rows; they come before the fillers.
  [[nodiscard]] std::int64_t real_rows(std::int64_t step) const noexcept;

  /// Row indices of the slots [first_slot, first_slot + out.size()) of the step's global batch.
  void rows_of(std::int64_t step, std::int64_t first_slot, std::span<std::int64_t> out) const;

 private:
  SamplerOptions options_;
  std::int64_t steps_per_epoch_ = 0;
};

}  // namespace shardmark::data

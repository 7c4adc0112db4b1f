#pragma once
// Rows of vectors with their targets, from a file or made up. Says nothing of steps, ranks or batches: see data/sampler.hpp.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace shardmark::data {

/// Where rows land, one after another; lent for the call. Of `targets` and `labels` the one the source has is filled: a
/// source with target_width() 0 has labels, another has targets; the other span stays empty.
struct VectorRows {
  std::span<float> features;       // rows x width
  std::span<float> targets;        // rows x target_width
  std::span<std::int64_t> labels;  // rows
};

class VectorSource {
 public:
  virtual ~VectorSource() = default;

  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  [[nodiscard]] virtual std::int64_t width() const = 0;
  /// Numbers to regress on per row; 0 if rows carry class labels.
  [[nodiscard]] virtual std::int64_t target_width() const = 0;
  /// Labels lie in [0, num_classes()); 0 if rows carry targets.
  [[nodiscard]] virtual std::int64_t num_classes() const = 0;
  /// Where rows come from, for output and record: "synthetic" or a path.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Reads rows by index. An index of -1 is a filler: zeros, label 0. Spans must have exactly the rows' size.
  /// Not safe to call from two threads at once. Throws IoError if reading fails.
  virtual void read(std::span<const std::int64_t> rows, const VectorRows& out) = 0;
};

/// Checks the spans of a `read` against the source's widths. A wrong size is a broken invariant of the caller.
void check_spans(const VectorSource& source, std::span<const std::int64_t> rows, const VectorRows& out);

}  // namespace shardmark::data

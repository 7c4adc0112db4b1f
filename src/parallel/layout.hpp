#pragma once
// Where each parameter lies in a flat buffer: pure arithmetic, no tensors, no communication. Rules of the layout: a tensor
// starts at a multiple of `alignment` elements, at the same offset in every buffer; groups (buckets or units) are contiguous
// and padded to multiples of alignment x shards, so every shard border is a multiple of the alignment.

#include <cstdint>
#include <vector>

namespace shardmark::parallel {

struct LayoutTensor {
  std::int64_t index = 0;  // of the parameter
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  friend bool operator==(const LayoutTensor&, const LayoutTensor&) = default;
};

struct LayoutGroup {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // padded
  std::vector<LayoutTensor> tensors;
  [[nodiscard]] std::int64_t numel() const { return end - begin; }
};

struct Layout {
  std::vector<LayoutGroup> groups;
  std::int64_t size = 0;     // elements with padding
  std::int64_t padding = 0;  // elements that belong to no tensor
};

/// Lays out groups in the given order, tensors in the given order within each. Sizes are indexed by parameter.
[[nodiscard]] Layout make_layout(const std::vector<std::vector<std::int64_t>>& groups, const std::vector<std::int64_t>& sizes,
                                 std::int64_t alignment, std::int64_t shards);

/// Cuts parameters, in the given order, into buckets of at most `bucket_elements` (one tensor may exceed it alone); the
/// first bucket holds at most `first_bucket_elements`: the sooner it fills, the sooner communication hides behind backward.
[[nodiscard]] std::vector<std::vector<std::int64_t>> cut_buckets(const std::vector<std::int64_t>& order,
                                                                 const std::vector<std::int64_t>& sizes,
                                                                 std::int64_t first_bucket_elements,
                                                                 std::int64_t bucket_elements);

}  // namespace shardmark::parallel

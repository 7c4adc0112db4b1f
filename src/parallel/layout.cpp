#include "parallel/layout.hpp"

#include <utility>

namespace shardmark::parallel {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Layout make_layout(const std::vector<std::vector<std::int64_t>>& groups, const std::vector<std::int64_t>& sizes,
                   std::int64_t alignment, std::int64_t shards) {
  Layout layout;
  std::int64_t used = 0;
  for (const auto& indices : groups) {
    LayoutGroup group;
    group.begin = layout.size;
    std::int64_t offset = group.begin;
    for (const auto index : indices) {
      const std::int64_t numel = sizes[static_cast<std::size_t>(index)];
      group.tensors.push_back({index, offset, numel});
      offset = round_up(offset + numel, alignment);
      used += numel;
    }
    group.end = group.begin + round_up(offset - group.begin, alignment * shards);
    layout.size = group.end;
    layout.groups.push_back(std::move(group));
  }
  layout.padding = layout.size - used;
  return layout;
}

std::vector<std::vector<std::int64_t>> cut_buckets(const std::vector<std::int64_t>& order,
                                                   const std::vector<std::int64_t>& sizes, std::int64_t first_bucket_elements,
                                                   std::int64_t bucket_elements) {
  std::vector<std::vector<std::int64_t>> buckets;
  std::int64_t filled = 0;
  for (const auto index : order) {
    const std::int64_t numel = sizes[static_cast<std::size_t>(index)];
    const std::int64_t limit = buckets.size() == 1 ? first_bucket_elements : bucket_elements;
    if (buckets.empty() || (!buckets.back().empty() && filled + numel > limit)) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(index);
    filled += numel;
  }
  return buckets;
}

}  // namespace shardmark::parallel

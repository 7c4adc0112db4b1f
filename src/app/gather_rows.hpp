#pragma once
// Rows of a record from every rank to rank 0.

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "world/world.hpp"

namespace shardmark::app {

/// All ranks' rows in rank order on rank 0, nothing elsewhere. Collective; ranks may have different numbers of rows.
template <typename Row>
[[nodiscard]] std::vector<Row> gather_rows(world::World& world, const std::vector<Row>& mine) {
  static_assert(std::is_trivially_copyable_v<Row>, "rows travel as bytes");
  std::vector<Row> all;
  for (const auto& bytes : world.gather(std::as_bytes(std::span(mine)))) {
    const std::size_t count = bytes.size() / sizeof(Row);
    const std::size_t before = all.size();
    all.resize(before + count);
    if (count > 0) {
      std::memcpy(all.data() + before, bytes.data(), bytes.size());
    }
  }
  return all;
}

}  // namespace shardmark::app

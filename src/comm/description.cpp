#include "comm/description.hpp"

#include <fmt/format.h>

#include "base/random.hpp"

namespace shardmark::comm {

Description describe(const Collective& collective, std::int64_t sequence, int world_rank) {
  return {.sequence = sequence,
          .send_count = collective.send.count,
          .receive_count = collective.receive.count,
          .tag = collective.tag,
          .root = collective.root,
          .world_rank = world_rank,
          .operation = collective.operation,
          .reduction = collective.reduction,
          .order = collective.order,
          .purpose = collective.purpose,
          .dtype = collective.receive.dtype};
}

std::uint64_t digest_of(const Description& description) {
  std::uint64_t hash = 0;
  const auto mix = [&](auto value) { hash = base::hash_mix(hash, static_cast<std::uint64_t>(value)); };
  mix(description.sequence);
  mix(description.send_count);
  mix(description.receive_count);
  mix(description.tag);
  mix(description.root);
  mix(description.operation);
  mix(description.reduction);
  mix(description.order);
  mix(description.purpose);
  mix(description.dtype);
  return hash;
}

std::string text_of(const Description& description) {
  std::string text(name_of(description.operation));
  if (description.operation == Operation::all_reduce || description.operation == Operation::reduce_scatter) {
    text += fmt::format(" {} {}", name_of(description.reduction), name_of(description.order));
  }
  if (description.operation != Operation::barrier) {
    text += fmt::format(", {}, {} elements", base::name_of(description.dtype), description.receive_count);
    if (description.send_count != 0) {
      text += fmt::format(" of {}", description.send_count);
    }
  }
  if (description.operation == Operation::broadcast) {
    text += fmt::format(", root {}", description.root);
  } else if (description.operation == Operation::send_receive) {
    text += fmt::format(", {} ahead", description.root);
  }
  return text + fmt::format(", {}, tag {}", name_of(description.purpose), description.tag);
}

}  // namespace shardmark::comm

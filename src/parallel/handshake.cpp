#include "parallel/handshake.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::parallel {
namespace {

std::string describe(const model::Parameter& parameter) {
  return fmt::format("{} ({}){}", parameter.name, fmt::join(parameter.shape, ", "), parameter.trainable ? "" : " frozen");
}

comm::Buffer bytes_of(std::vector<std::uint8_t>& bytes) {
  return comm::host_buffer(bytes.data(), static_cast<std::int64_t>(bytes.size()), base::DType::uint8);
}

/// Every rank's text of one parameter, cut to a fixed length.
std::vector<std::string> gather_texts(const std::string& mine, comm::Communicator& communicator) {
  constexpr std::size_t kLength = 192;
  std::vector<std::uint8_t> send(kLength, 0);
  std::memcpy(send.data(), mine.data(), std::min(mine.size(), kLength - 1));
  std::vector<std::uint8_t> receive(kLength * static_cast<std::size_t>(communicator.size()), 0);
  communicator.all_gather(bytes_of(send), bytes_of(receive), comm::Purpose::control, 0).wait();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(communicator.size()); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(receive.data() + rank * kLength));
  }
  return texts;
}

}  // namespace

void compare_parameters(const model::ParameterList& list, comm::Communicator& communicator) {
  const auto& parameters = list.parameters();
  std::vector<std::int64_t> hashes;  // of every prefix: the first difference shows where lists part
  std::uint64_t hash = 0;
  for (const auto& parameter : parameters) {
    hash = base::hash_mix(hash, base::hash_text(describe(parameter)));
    hashes.push_back(static_cast<std::int64_t>(hash));
  }
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(parameters.size()), static_cast<std::int64_t>(hash)};
  std::vector<std::int64_t> all(2 * size);
  communicator
      .all_gather(comm::host_buffer(mine.data(), 2, base::DType::int64),
                  comm::host_buffer(all.data(), static_cast<std::int64_t>(all.size()), base::DType::int64),
                  comm::Purpose::control, 0)
      .wait();
  bool equal = true;
  std::int64_t shortest = mine[0];
  for (std::size_t rank = 0; rank < size; ++rank) {
    equal = equal && all[2 * rank] == all[0] && all[2 * rank + 1] == all[1];
    shortest = std::min(shortest, all[2 * rank]);
  }
  if (equal) {
    return;
  }
  // Rare path: walk the parameters together until the texts differ.
  for (std::int64_t index = 0; index <= shortest; ++index) {
    const auto at = static_cast<std::size_t>(index);
    const std::string text = at < parameters.size() ? describe(parameters[at]) : "no further parameter";
    const auto texts = gather_texts(text, communicator);
    for (std::size_t rank = 1; rank < size; ++rank) {
      if (texts[rank] != texts[0]) {
        throw base::MismatchError(
            fmt::format("ranks hold different models: parameter {} is \"{}\" on rank 0 and \"{}\" on rank {}", index, texts[0],
                        texts[rank], rank));
      }
    }
  }
  throw base::MismatchError("ranks hold different models: hashes of the parameter lists differ");
}

}  // namespace shardmark::parallel

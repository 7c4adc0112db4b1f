#include "comm/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "world/sides.hpp"

namespace shardmark::comm {
namespace {

constexpr int kMismatchTag = static_cast<int>(kNumTags);

std::string sides_of(const std::vector<Description>& descriptions) {
  std::vector<std::string> texts;
  std::vector<int> ranks;
  for (const Description& description : descriptions) {
    texts.push_back(text_of(description));
    ranks.push_back(description.world_rank);
  }
  return world::sides_text(texts, ranks);
}

}  // namespace

Agreement::Agreement(CommHandle handle) : group_(std::move(handle)) {
  while ((1 << num_rounds_) < group_.size()) {
    ++num_rounds_;
  }
}

Agreement::~Agreement() {
  for (Slot& slot : slots_) {
    withdraw(slot.requests);
  }
}

void Agreement::start(const Description& description) {
  descriptions_.push_back(description);
  begin_waiting();
}

void Agreement::begin_waiting() {
  while (begun_ - taken_ < static_cast<std::int64_t>(std::min(kSlots, descriptions_.size()))) {
    Slot& fresh = slot(begun_);
    const std::uint64_t digest = digest_of(descriptions_[static_cast<std::size_t>(begun_ - taken_)]);
    fresh.mine = {digest, ~digest};
    fresh.round = 0;
    fresh.tag = static_cast<int>(begun_ % kNumTags);
    ++begun_;
    if (num_rounds_ > 0) {
      post(fresh);
    }
  }
}

void Agreement::post(Slot& slot) {
  const int distance = 1 << slot.round;
  slot.sent = slot.mine;
  group_.receive(slot.received.data(), sizeof slot.received, (group_.rank() - distance + group_.size()) % group_.size(),
                 slot.tag, slot.requests);
  group_.send(slot.sent.data(), sizeof slot.sent, (group_.rank() + distance) % group_.size(), slot.tag, slot.requests);
}

bool Agreement::advance(Slot& slot) {
  while (slot.round < num_rounds_) {
    if (!group_.test_all(slot.requests)) {
      return false;
    }
    slot.mine = {std::min(slot.mine[0], slot.received[0]), std::min(slot.mine[1], slot.received[1])};
    if (++slot.round < num_rounds_) {
      post(slot);
    }
  }
  return true;
}

bool Agreement::next_agreed() {
  bool oldest_complete = false;
  for (std::int64_t number = taken_; number < begun_; ++number) {
    const bool complete = advance(slot(number));  // the later ones too: others wait for what they pass on
    oldest_complete = number == taken_ ? complete : oldest_complete;
  }
  if (!oldest_complete) {
    return false;
  }
  const Digests& all = slot(taken_).mine;
  if (all[0] != ~all[1]) {
    raise_mismatch(descriptions_.front());
  }
  descriptions_.pop_front();
  ++taken_;
  begin_waiting();
  return true;
}

void Agreement::raise_mismatch(const Description& mine) {
  std::vector<Description> all(static_cast<std::size_t>(group_.size()));
  std::vector<MPI_Request> requests;
  all[static_cast<std::size_t>(group_.rank())] = mine;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer != group_.rank()) {
      group_.receive(&all[static_cast<std::size_t>(peer)], sizeof(Description), peer, kMismatchTag, requests);
      group_.send(&mine, sizeof mine, peer, kMismatchTag, requests);
    }
  }
  const double started_s = base::now_s();
  for (std::int64_t turn = 0; !group_.test_all(requests); ++turn) {
    for (std::int64_t number = taken_ + 1; number < begun_; ++number) {
      static_cast<void>(advance(slot(number)));
    }
    group_.world().poll(
        turn, started_s,
        {.operation = "comparing collectives", .purpose = name_of(mine.purpose), .sequence = mine.sequence, .tag = mine.tag});
  }
  throw base::MismatchError(
      fmt::format("collective number {} differs between ranks: {}. Every rank must start the same "
                  "collectives in the same order",
                  mine.sequence, sides_of(all)));
}

}  // namespace shardmark::comm

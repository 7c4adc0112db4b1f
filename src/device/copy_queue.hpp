#pragma once
// Copies between host memory and the memory where training runs, under way while something else is computed. Knows nothing of
// what it copies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace shardmark::device {

enum class CopyTicket : std::uint64_t {};

/// One owner; no calls from several threads. Destruction waits for what was started, and gives back what is lent.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;

  /// Host memory of copies to come, until it is taken back: pinned where copies of other memory hold the host. No two share a
  /// page. Lends nothing if it throws.
  virtual void lend(void* /*data*/, std::size_t /*bytes*/) {}
  /// Nothing of it is under way.
  virtual void take_back(void* /*data*/) {}
  /// Starts a copy. `from` holds its values already; both sides are lent, and `from` unchanged, until the ticket was waited
  /// for. Copies may run at once and in any order: wait for one before starting another that touches the same memory.
  [[nodiscard]] virtual CopyTicket start(void* into, const void* from, std::size_t bytes) = 0;
  /// Returns when the copy is complete. Each ticket is waited for once.
  virtual void wait(CopyTicket ticket) = 0;
};

using MakeCopyQueue = std::function<std::unique_ptr<CopyQueue>()>;

/// Where training runs in host memory itself: copies at once, in the caller. A thread that copied beside would take the core
/// that a rank computes on.
[[nodiscard]] std::unique_ptr<CopyQueue> make_host_copy_queue();

}  // namespace shardmark::device

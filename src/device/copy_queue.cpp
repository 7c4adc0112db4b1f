#include "device/copy_queue.hpp"

#include <cstring>

namespace shardmark::device {
namespace {

class HostCopyQueue final : public CopyQueue {
 public:
  CopyTicket start(void* into, const void* from, std::size_t bytes) override {
    if (bytes > 0) {  // an empty tensor has no memory to name
      std::memcpy(into, from, bytes);
    }
    return CopyTicket{0};
  }
  void wait(CopyTicket /*ticket*/) override {}
};

}  // namespace

std::unique_ptr<CopyQueue> make_host_copy_queue() {
  return std::make_unique<HostCopyQueue>();
}

}  // namespace shardmark::device

#include "comm/nccl_stream_kernels.hpp"
#include "device/host_device.hpp"

namespace shardmark::comm {
namespace {

/// Runs `host` in its turn if the stream is a thread, else calls `device` with the CUDA stream.
template <typename Host, typename OnDevice>
void enqueue(device::Stream& stream, Host host, const OnDevice& on_device) {
  if (stream.on_host()) {
    static_cast<device::HostStream*>(stream.handle())->enqueue([host](const std::stop_token& /*stopping*/) { host(); });
  } else {
    on_device(stream.handle());
  }
}

}  // namespace

void tree_reduce_on(device::Stream& stream, const std::vector<const void*>& sources, void* out, std::int64_t count,
                    base::DType dtype, kernels::TreeOperation operation) {
  const int size = static_cast<int>(sources.size());
  enqueue(
      stream, [=] { kernels::tree_reduce(sources.data(), size, out, count, dtype, operation); },
      [&](void* cuda) { kernels::tree_reduce_device(sources.data(), size, out, count, dtype, operation, cuda); });
}

void tree_sum_widened_on(device::Stream& stream, const std::vector<const void*>& sources, float* out, std::int64_t count) {
  const int size = static_cast<int>(sources.size());
  enqueue(
      stream, [=] { kernels::tree_sum_widened(sources.data(), size, out, count); },
      [&](void* cuda) { kernels::tree_sum_widened_device(sources.data(), size, out, count, cuda); });
}

}  // namespace shardmark::comm

#pragma once
// Kernels of ours enqueued on a stream, whatever the stream runs on.

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"
#include "kernels/tree_sum.hpp"

namespace shardmark::comm {

/// kernels::tree_reduce on the stream. Buffers are lent until the stream has passed.
void tree_reduce_on(device::Stream& stream, const std::vector<const void*>& sources, void* out, std::int64_t count,
                    base::DType dtype, kernels::TreeOperation operation);
/// kernels::tree_sum_widened likewise.
void tree_sum_widened_on(device::Stream& stream, const std::vector<const void*>& sources, float* out, std::int64_t count);

}  // namespace shardmark::comm

#include "comm/collective_trace.hpp"

namespace shardmark::comm {

CollectiveTrace::CollectiveTrace(base::Trace& trace) : trace_(trace) {
  for (std::size_t i = 0; i < kOperations; ++i) {
    const std::string operation(name_of(static_cast<Operation>(i)));
    operations_[i] = trace_.intern(operation);
    waits_[i] = trace_.intern("wait for " + operation);
  }
  for (std::size_t i = 0; i < kPurposes; ++i) {
    purposes_[i] = trace_.intern(name_of(static_cast<Purpose>(i)));
  }
  for (std::size_t i = 0; i < kDTypes; ++i) {
    dtypes_[i] = trace_.intern(base::name_of(static_cast<base::DType>(i)));
  }
}

std::int64_t CollectiveTrace::start(const Collective& collective, base::TraceName group, double now_s) {
  base::TraceEvent event;
  event.start_s = now_s;
  event.bytes = collective.message_bytes();
  event.tag = collective.tag;
  event.sequence = num_started_++;
  event.name = operations_[static_cast<std::size_t>(collective.operation)];
  event.purpose = purposes_[static_cast<std::size_t>(collective.purpose)];
  event.group = group;
  event.dtype = dtypes_[static_cast<std::size_t>(collective.message_dtype())];
  event.kind = base::TraceKind::collective;
  return trace_.add(event);
}

void CollectiveTrace::waited(std::int64_t event, double start_s, double end_s) {
  if (event < 0) {
    trace_.add(base::TraceKind::wait, waits_[0], start_s, end_s);  // counted as dropped, as its collective was
    return;
  }
  base::TraceEvent wait = trace_.event(event);
  std::size_t operation = 0;
  while (operation + 1 < kOperations && operations_[operation] != wait.name) {
    ++operation;
  }
  wait.name = waits_[operation];
  wait.kind = base::TraceKind::wait;
  wait.start_s = start_s;
  wait.end_s = end_s;
  trace_.add(wait);
}

}  // namespace shardmark::comm

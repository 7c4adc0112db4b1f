#pragma once
// An adapter's adapter_config.json, as the public library writes it: its numbers become keys of section [model.lora].

#include <string>
#include <vector>

#include "config/architecture.hpp"

namespace shardmark::config {

/// What the file says. An entry that changes the adapter and is not built here is a problem, never ignored; then, or if the
/// file cannot be read, the result is empty.
[[nodiscard]] std::vector<ArchitectureKey> read_adapter(const std::string& path, Problems& problems);

}  // namespace shardmark::config

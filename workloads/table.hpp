#pragma once
// The reference workloads by name. A table, not self-registration: static initializers vanish from static libraries.

#include <span>
#include <string>
#include <vector>

#include "train/workload.hpp"

namespace shardmark::workloads {

[[nodiscard]] std::span<const train::WorkloadEntry> table();
/// Throws ConfigError naming what is accepted.
[[nodiscard]] std::unique_ptr<train::Workload> make_workload(const config::RunConfig& config);

/// The makers, one per file of this folder.
[[nodiscard]] std::unique_ptr<train::Workload> make_lm(const config::RunConfig& config);
[[nodiscard]] std::unique_ptr<train::Workload> make_mlp(const config::RunConfig& config);
[[nodiscard]] std::unique_ptr<train::Workload> make_transformer(const config::RunConfig& config);
[[nodiscard]] std::unique_ptr<train::Workload> make_two_tower(const config::RunConfig& config);
[[nodiscard]] std::unique_ptr<train::Workload> make_retinanet(const config::RunConfig& config);

}  // namespace shardmark::workloads

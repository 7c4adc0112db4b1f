#pragma once
// Facts about a run that go into its record: identity, ranks, environment.

#include <string>
#include <vector>

#include "app/run_device.hpp"
#include "config/run_config.hpp"
#include "record/rows.hpp"
#include "world/world.hpp"

namespace shardmark::app {

/// Root attributes known before training.
[[nodiscard]] record::RunAttributes make_attributes(const config::RunConfig& config, const world::World& world);
[[nodiscard]] record::RankRow make_rank_row(const world::World& world, const RunDevice& device);
[[nodiscard]] std::vector<record::EnvironmentRow> make_environment(const std::string& planted_fault,
                                                                   const std::string& data_source, const RunDevice& device,
                                                                   const std::string& backend);
[[nodiscard]] std::vector<record::ConfigKeyRow> make_config_rows(const config::RunConfig& config);
/// PRESET-TECHNIQUE-nRANKS-TIME[-jobID.ATTEMPT].h5 in the working folder.
[[nodiscard]] std::string default_record_name(const config::RunConfig& config, int world_size);

}  // namespace shardmark::app

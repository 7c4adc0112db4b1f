#pragma once
// Finds the facts out. Nothing here judges, and nothing throws because a thing is missing: what is unknown stays so.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "app/doctor/facts.hpp"
#include "app/kernel_files.hpp"
#include "base/fault.hpp"
#include "world/world.hpp"

namespace shardmark::app::doctor {

/// From the environment; before MPI_Init, which sets variables of its own.
[[nodiscard]] LauncherFacts gather_launcher();
[[nodiscard]] std::vector<std::pair<std::string, std::string>> gather_environment();

/// What this process sees of its node; its place among the ranks is left to the caller.
[[nodiscard]] RankFacts gather_rank();
void gather_host(RankFacts& rank);
[[nodiscard]] LibraryFacts gather_libraries();
[[nodiscard]] DeviceFacts gather_devices();

/// Tries to write and lock in the folder; leaves nothing behind.
[[nodiscard]] FolderFacts gather_folder(const std::string& folder);

/// Sends messages between rank 0 and another rank of its node, and between rank 0 and the first rank of another node, over the
/// communicator that runs use. Collective over the world. Throws DeadlineError, RemoteError, MpiError if messages do not
/// arrive; then nothing on the world may go on.
[[nodiscard]] std::vector<PairFacts> measure_pairs(world::World& world, base::FaultPlan& faults);

/// Facts of one rank as they travel to rank 0.
[[nodiscard]] std::string to_text(const RankFacts& rank);
[[nodiscard]] RankFacts rank_facts_from(std::span<const std::byte> text);

}  // namespace shardmark::app::doctor

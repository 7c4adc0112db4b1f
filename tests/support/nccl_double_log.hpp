#pragma once
// The log of the double: the lines that NCCL 2.30.7 writes when it makes a communicator and when it connects two ranks, where
// the environment asks for them (NCCL_DEBUG=INFO and NCCL_DEBUG_FILE, with %h and %p). As NCCL's, the file is opened once in a
// process.

#include <string>

namespace shardmark::testing {

/// How the double says from now on that messages go: "SHM/direct", "NET/Socket/0".
void set_nccl_path(const std::string& path);

void log_nccl_init(int rank, int num_ranks, const std::string& id);
void log_nccl_split(int rank, int num_ranks, int parent_rank);
/// To and from every other rank, over two channels.
void log_nccl_paths(int rank, int num_ranks);

}  // namespace shardmark::testing

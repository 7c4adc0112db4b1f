#pragma once
// Messages to people: standard error, one line a message. Rank 0 alone informs; any rank may report an error, prefixed with
// its rank and host. Results go to standard output and never through here.

#include <fmt/format.h>

#include <string>

namespace shardmark::base {

/// Names this process in error lines and decides whether it informs. Until it is called the process is alone.
void set_log_identity(int world_rank, int world_size, const std::string& host);

/// One line from rank 0; silent on the others.
void log_info(const std::string& message);
/// One line from rank 0, marked as a warning; silent on the others.
void log_warning(const std::string& message);
/// One line from any rank, with rank and host where there are several.
void log_error(const std::string& message);
/// One line from any rank with its prefix but not marked as an error: reports that only one rank can make.
void log_rank(const std::string& message);

}  // namespace shardmark::base

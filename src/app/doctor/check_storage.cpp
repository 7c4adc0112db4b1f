// The folder of records: may rank 0 write there, do locks work, what is it, how much is free.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

// A record grows by about 200 bytes a step and rank: 64 MiB hold 300,000 such rows, a long run of one node; 1 GiB also holds
// the memory and collective tables and traces of a large job.
constexpr std::int64_t kFewBytes = std::int64_t{1} << 30;
constexpr std::int64_t kTooFewBytes = std::int64_t{64} << 20;

/// HDF5 takes these texts and no others, in capitals.
constexpr std::array<std::string_view, 5> kLockingValues{"TRUE", "1", "FALSE", "0", "BEST_EFFORT"};

Line lock_line(const JobFacts& job) {
  const auto& folder = job.folder;
  const auto value = variable(job.ranks.front(), "HDF5_USE_FILE_LOCKING");
  const auto setting = value.empty() ? std::string() : fmt::format(", HDF5_USE_FILE_LOCKING = \"{}\"", value);
  const bool off = value == "FALSE" || value == "0";
  if (!folder.flock_problem.empty() && !off) {
    return {"file locks", Result::fail,
            fmt::format("HDF5 cannot lock files in {}: {}{}", folder.path, folder.flock_problem, setting),
            "write to a file system with locks (--folder tries one), or export HDF5_USE_FILE_LOCKING=FALSE and never let two "
            "programs open one record"};
  }
  if (!value.empty() && std::ranges::find(kLockingValues, value) == kLockingValues.end()) {
    return {"file locks", Result::warn,
            fmt::format("HDF5_USE_FILE_LOCKING = \"{}\" means nothing to HDF5, which goes on as if it were not set", value),
            "set TRUE, FALSE or BEST_EFFORT, in capitals, or unset it"};
  }
  if (off) {
    return {"file locks", Result::warn, fmt::format("HDF5 does not lock files{}", setting),
            "unset HDF5_USE_FILE_LOCKING unless the file system has no locks: a second writer would spoil the record unseen"};
  }
  if (!folder.file_lock_problem.empty()) {
    return {"file locks", Result::warn,
            fmt::format("flock works, record locks do not: {}{}", folder.file_lock_problem, setting),
            "two runs with the same output file would not notice each other: give each its own"};
  }
  return {"file locks", Result::pass, "work" + setting, ""};
}

Line file_system_line(const FolderFacts& folder) {
  const auto& name = folder.file_system;
  if (name == "tmpfs" || name == "ramfs") {
    return {"file system", Result::warn, name + ": lives in memory",
            "records there are lost with the node and use memory of the job: choose a folder on a disk"};
  }
  if (name == "nfs" || name == "cifs" || name == "smb2") {
    return {"file system", Result::warn, name + ": other nodes may see writes late, and locks depend on its server",
            "write to a local or parallel file system and copy the record afterwards; HDF5's SWMR does not work here"};
  }
  return {"file system", Result::pass, name.empty() ? "unknown" : name, ""};
}

}  // namespace

void check_storage(const JobFacts& job, std::vector<Line>& lines) {
  const auto& folder = job.folder;
  if (!folder.problem.empty()) {
    lines.push_back({"output folder", Result::fail, fmt::format("{}: {}", folder.path, folder.problem),
                     "give a folder that exists and may be written to by this user on rank 0's node (--folder, -o of run)"});
  } else {
    lines.push_back({"output folder", Result::pass, folder.path + " is writable", ""});
  }
  if (folder.free_bytes < 0) {
    for (const char* check : {"file locks", "file system", "free space"}) {
      lines.push_back({check, Result::skip, "there is no folder to look at", ""});
    }
    return;
  }
  lines.push_back(folder.problem.empty() ? lock_line(job)
                                         : Line{"file locks", Result::skip, "nothing can be written there", ""});
  lines.push_back(file_system_line(folder));
  const auto free = base::format_bytes(static_cast<double>(folder.free_bytes));
  const auto result = folder.free_bytes < kTooFewBytes ? Result::fail
                      : folder.free_bytes < kFewBytes  ? Result::warn
                                                       : Result::pass;
  lines.push_back(
      {"free space", result, free + " free for this user",
       result == Result::pass
           ? ""
           : fmt::format("free at least {} or choose another folder: a record that finds the disk full ends with exit 10",
                         base::format_bytes(static_cast<double>(kFewBytes)))});
}

}  // namespace shardmark::app::doctor

#pragma once
// The names a record has on disk: FILE.h5, FILE.h5.partial while it is written, FILE.h5.partial.1, ... for what dead runs
// left. Knows nothing of HDF5.

#include <string>

namespace shardmark::record {

/// Checks what can be checked without writing: an existing FILE.h5, a FILE.h5.partial that a live run is writing, a missing
/// or unwritable folder, path is a folder. Throws ConfigError (exists, is in use, is a folder, folder missing) or IoError
/// (read-only) naming path and remedy.
void check_writable(const std::string& path, bool overwrite);

/// FILE.h5.partial
[[nodiscard]] std::string partial_name(const std::string& path);
/// Folder of a file, "." where the name has none.
[[nodiscard]] std::string folder_of(const std::string& path);

/// Renames a left-over FILE.h5.partial to .partial.1, .2, ...; nothing to do if there is none. Throws ConfigError if a live
/// run is writing it. True if the file system could tell, or there was no file.
[[nodiscard]] bool move_left_over(const std::string& path);

/// Throws the ConfigError of a path that another run is writing to.
[[noreturn]] void refuse_in_use(const std::string& path);

/// Makes a file's bytes, or a folder's names, durable. Throws IoError.
void sync_path(const std::string& path, int open_flags);

}  // namespace shardmark::record

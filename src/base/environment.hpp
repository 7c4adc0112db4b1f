#pragma once
// The only place that reads or sets environment variables. Which variables a record may carry is decided here too.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::base {

/// The variable's value; absent if it is not set or empty.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

/// The variable as a whole number; absent if not set. Throws EnvironmentError if it is not a number.
[[nodiscard]] std::optional<long> environment_number(const std::string& name);

/// For libraries that take their settings from the environment only, before their first call. Not safe while another thread may
/// read the environment. Throws EnvironmentError if the system refuses the name.
void set_environment_variable(const std::string& name, const std::string& value);

/// Variables whose names begin with one of the prefixes, sorted by name; never one whose name hints at a secret.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> environment_by_prefix(
    std::span<const std::string_view> prefixes);

/// Variables that are safe and useful in a record, with their values: threads, binding, MPI and NCCL tuning, Slurm facts.
/// Never the whole environment, so that no secret is stored.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> recorded_environment();

}  // namespace shardmark::base

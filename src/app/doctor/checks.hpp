#pragma once
// Judges what was found: facts in, one line per check out. Pure: no MPI, no files, no environment.

#include <string>
#include <string_view>
#include <vector>

#include "app/doctor/facts.hpp"

namespace shardmark::app::doctor {

/// In order of weight. skip: the thing does not exist here, and `found` says why.
enum class Result { skip, pass, warn, fail };
[[nodiscard]] std::string_view name_of(Result result);

struct Line {
  std::string check;
  Result result = Result::pass;
  std::string found;
  std::string remedy;
};

/// Every check in a fixed order. `job.ranks` must not be empty and is in rank order.
[[nodiscard]] std::vector<Line> judge(const JobFacts& job);

/// The gravest result of all.
[[nodiscard]] Result worst(const std::vector<Line>& lines);

}  // namespace shardmark::app::doctor

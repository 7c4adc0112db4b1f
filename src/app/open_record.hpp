#pragma once
// A record for a command that shows one.

#include <fmt/format.h>

#include <string>

#include "base/log.hpp"
#include "record/reader.hpp"

namespace shardmark::app {

/// Says so where an interrupted run left it. Throws as record::read_record.
[[nodiscard]] inline record::Record open_record(const std::string& file) {
  auto record = record::read_record(file);
  if (record.partial) {
    base::log_warning(fmt::format("{} is what an interrupted run left: {} step rows", record.path, record.steps.size()));
  }
  return record;
}

}  // namespace shardmark::app

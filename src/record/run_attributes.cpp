#include "record/run_attributes.hpp"

#include "record/attribute_values.hpp"
#include "record/hdf5_table.hpp"

namespace shardmark::record {
namespace {

/// Visits every attribute with its name; `Attributes` is RunAttributes, const or not.
template <typename Attributes, typename Visit>
void for_each_attribute(Attributes& a, const Visit& visit) {
  visit("schema_version", a.schema_version);
  visit("shardmark_version", a.shardmark_version);
  visit("definition_version", a.definition_version);
  visit("commit", a.commit);
  visit("dirty", a.dirty);
  visit("binary_hash", a.binary_hash);
  visit("created", a.created);
  visit("status", a.status);
  visit("error", a.error);
  visit("exit_code", a.exit_code);
  visit("workload", a.workload);
  visit("preset", a.preset);
  visit("technique", a.technique);
  visit("world_size", a.world_size);
  visit("config_hash", a.config_hash);
  visit("run_id", a.run_id);
  visit("suite_id", a.suite_id);
  visit("case_id", a.case_id);
  visit("repeat", a.repeat);
  visit("job_id", a.job_id);
  visit("attempt", a.attempt);
}

struct Write {
  hid_t root;
  const std::string& path;
  void operator()(const char* name, const std::string& value) const { set_text_attribute(root, name, value, path); }
  void operator()(const char* name, std::int64_t value) const { set_whole_attribute(root, name, value, path); }
};

struct Read {
  hid_t root;
  const std::string& path;
  void operator()(const char* name, std::string& value) const { value = get_text_attribute(root, name, path); }
  void operator()(const char* name, std::int64_t& value) const { value = get_whole_attribute(root, name, path); }
};

}  // namespace

std::vector<std::pair<std::string, AttributeValue>> attribute_values(const RunAttributes& attributes) {
  std::vector<std::pair<std::string, AttributeValue>> values;
  for_each_attribute(attributes, [&](const char* name, const auto& value) { values.emplace_back(name, value); });
  return values;
}

void write_run_attributes(hid_t root, const RunAttributes& attributes, const std::string& path) {
  for_each_attribute(attributes, Write{root, path});
}

RunAttributes read_run_attributes(hid_t root, const std::string& path) {
  RunAttributes attributes;
  for_each_attribute(attributes, Read{root, path});
  return attributes;
}

}  // namespace shardmark::record

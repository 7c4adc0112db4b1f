#include "record/schema.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "record/schema_tables.hpp"

namespace shardmark::record {

std::span<const Table> tables() {
  static const std::vector<Table> all{ranks_table(),   environment_table(), config_keys_table(), steps_table(),
                                      memory_table(),  collectives_table(), evaluations_table(), checks_table(),
                                      summary_table(), telemetry_table(),   health_table(),      transport_table(),
                                      trace_table(),   trace_ranks_table(), comm_table()};
  return all;
}

const Table& table(std::string_view name) {
  const auto all = tables();
  const auto found = std::ranges::find(all, name, &Table::name);
  SM_CHECK(found != all.end(), "no table " + std::string(name));
  return *found;
}

std::span<const Column> attributes() {
  const auto text = [](std::string name, std::string definition, std::string traps = "") {
    return Column{std::move(name), ColumnType::text, 0, 0, "", std::move(definition), "", "root attribute, written by rank 0",
                  std::move(traps)};
  };
  const auto whole = [](std::string name, std::string definition, std::string traps = "") {
    return Column{std::move(name), ColumnType::int64, 0, 0, "1", std::move(definition), "", "root attribute, written by rank 0",
                  std::move(traps)};
  };
  static const std::vector<Column> all{
      whole("schema_version", "version of this layout; readers refuse newer ones"),
      text("shardmark_version", "version of the program that wrote the record"),
      whole("definition_version", "version of the preset's definition", "records of different versions are not compared"),
      text("commit", "source revision of the program, \"unknown\" outside a checkout"),
      whole("dirty", "1 if the sources differed from that revision when the program was configured"),
      text("binary_hash", "hash of the running program's file"),
      text("created", "UTC wall time at the start of the run", "a label: no duration is computed from it"),
      text("status", "interrupted (from creation), complete, stopped or failed",
           "this is the truth; a launcher's exit code is a hint"),
      text("error", "what ended the run, \"\" if nothing did"),
      whole("exit_code", "code the program returned, -1 while it runs"),
      text("workload", "reference workload that was trained"),
      text("preset", "preset or file the run started from"),
      text("technique", "how training was spread over ranks"),
      whole("world_size", "ranks of the MPI world that worked together"),
      text("config_hash", "hash of every setting that matters to the result"),
      text("run_id", "identifies this run: time, host, process and configuration"),
      text("suite_id", "the suite that started the run, \"\" if none"),
      text("case_id", "the case of that suite, \"\" if none"),
      whole("repeat", "which repetition of the case, from 0"),
      text("job_id", "batch job, \"\" outside one"),
      whole("attempt", "how often the batch job was restarted"),
  };
  return all;
}

}  // namespace shardmark::record

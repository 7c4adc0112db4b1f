#include "analysis/columns.hpp"

#include <vector>

namespace shardmark::analysis {
namespace {

using record::Column;
using record::ColumnType;

struct Texts {
  std::string unit;
  std::string definition;
  std::string formula = "";
  std::string traps = "";
};

class Columns {
 public:
  explicit Columns(std::string command) : command_(std::move(command)) {}

  Columns& add(const char* name, ColumnType type, Texts texts) {
    list_.push_back({command_ + "." + name, type, 0, 0, std::move(texts.unit), std::move(texts.definition),
                     std::move(texts.formula), command_, std::move(texts.traps)});
    return *this;
  }
  [[nodiscard]] const std::vector<Column>& list() const { return list_; }

 private:
  std::string command_;
  std::vector<Column> list_;
};

std::vector<Column> compare_columns() {
  Columns columns("compare");
  columns
      .add("peer", ColumnType::text,
           {.unit = "",
            .definition = "the program that trained, where it is another than shardmark (scripts/peers)",
            .traps = "peers count no collectives, and host_rss of /memory is their only memory on a CPU"})
      .add("ratio", ColumnType::float64,
           {.unit = "1",
            .definition = "throughput against the first comparable record of the same preset and number of ranks",
            .formula = "samples_per_s / samples_per_s of that record",
            .traps = "empty where no other record is alike in all keys that make a comparison fair; `note` names them"})
      .add("efficiency", ColumnType::float64,
           {.unit = "1",
            .definition = "throughput a rank against the record of the fewest ranks",
            .formula = "samples_per_s_per_gpu / samples_per_s_per_gpu of that record",
            .traps = "weak and strong scaling are different questions: see `scaling`"})
      .add("scaling", ColumnType::text,
           {.unit = "",
            .definition = "what stayed equal when ranks were added: weak = rows a rank, strong = rows of the global batch",
            .traps = "empty where both changed, and then there is no efficiency"})
      .add("checks", ColumnType::text, {.unit = "", .definition = "checks passed of all checks in the record"})
      .add("file", ColumnType::text, {.unit = "", .definition = "the record's file name"})
      .add("note", ColumnType::text,
           {.unit = "",
            .definition = "why a record is not compared, or what to know of its ratio: \"not steady\" where step times still "
                          "drift, and settings of how it was run that differ from the other record's"});
  for (const char* category : {"parameters", "gradients", "optimizer_state", "offloaded", "gathered", "buckets", "activations",
                               "workspace", "other", "total"}) {
    columns.add((std::string(category) + "_bytes").c_str(), ColumnType::float64,
                {.unit = "bytes",
                 .definition = "largest of this category on any rank over the whole run (--memory)",
                 .formula = "max over ranks of memory.peak_bytes where phase = run",
                 .traps = "peaks of different categories come at different moments: they do not add up to the total; offloaded "
                          "is host memory (technique.offload), on a CPU part of the total"});
  }
  columns
      .add("rank_shardmark", ColumnType::int64,
           {.unit = "1", .definition = "place of the technique by samples_per_s among those that both sides have (--transfer)"})
      .add("rank_peer", ColumnType::int64, {.unit = "1", .definition = "the same among the peers' records (--transfer)"})
      .add("ratio_shardmark", ColumnType::float64,
           {.unit = "1",
            .definition = "throughput against ddp in our records under technique.profile fsdp2 or deepspeed (--transfer)",
            .formula = "median samples_per_s / median samples_per_s of ddp"})
      .add("ratio_peer", ColumnType::float64,
           {.unit = "1",
            .definition = "throughput against ddp in the peers' records (--transfer)",
            .formula = "median samples_per_s / median samples_per_s of ddp"})
      .add("ratios_agree", ColumnType::text,
           {.unit = "",
            .definition =
                "of the interval of ratio_shardmark / ratio_peer: \"yes\" if it lies between 1/1.25 and 1.25, else \"no\" if "
                "it leaves out 1, else \"undecided\" (--transfer)",
            .formula =
                "each ratio: [low / high of ddp, high / low of ddp]; low and high: throughput_low and throughput_high of one "
                "record, smallest and largest samples_per_s of several",
            .traps = "the range of few records says less than that of many: repeat runs"})
      .add("transfer", ColumnType::text,
           {.unit = "",
            .definition = "whether the peers' ranking is ours: of every two techniques whose intervals lie apart on both sides",
            .traps = "\"undecided\" where no two techniques lie apart on both sides"});
  return columns.list();
}

std::vector<Column> plan_columns() {
  return Columns("plan")
      .add("phase", ColumnType::text,
           {.unit = "", .definition = "forward, backward, optimizer, or run = the largest of the three"})
      .add("category", ColumnType::text, {.unit = "", .definition = "as memory.category"})
      .add("predicted_bytes", ColumnType::int64,
           {.unit = "bytes",
            .definition = "peak of this category and phase on one rank in steady state",
            .traps = "activations, workspace and what the libraries keep beside are not part of it"})
      .add("persistent_bytes", ColumnType::int64,
           {.unit = "bytes", .definition = "what of it stays from step to step: exact in every run"})
      .add("fits", ColumnType::text,
           {.unit = "",
            .definition = "\"no\", or \"before activations\" where the predicted peak is within --memory",
            .traps = "a plan that fits before activations still needs room for them; what is offloaded is in host memory, "
                     "which neither this nor the total counts"})
      .add("step_time_s", ColumnType::float64, {.unit = "s", .definition = "missing without a model of the machine"})
      .add("wire_bytes_per_step", ColumnType::float64,
           {.unit = "bytes",
            .definition = "nominal bytes a rank sends in an optimizer step for gradients and parameters",
            .formula = "all_reduce 2 (g-1)/g S, other collectives (g-1)/g S, S the whole padded buffer in a group of g",
            .traps = "not what a network card carries"})
      .list();
}

std::vector<Column> verify_columns() {
  return Columns("verify")
      .add("reduction", ColumnType::text,
           {.unit = "", .definition = "order of sums: ordered = one fixed tree over ranks, fast = the library's own"})
      .add("check", ColumnType::text, {.unit = "", .definition = "what is proved"})
      .add("expected", ColumnType::float64,
           {.unit = "",
            .definition =
                "value of the formula; 0 where `found` is a distance from one rank alone or a number of differing bits"})
      .add("found", ColumnType::float64, {.unit = "", .definition = "value of this technique"})
      .add("tolerance", ColumnType::float64,
           {.unit = "", .definition = "largest difference that passes; 0 = the same bits or the same number of bytes"})
      .add("result", ColumnType::text, {.unit = "", .definition = "passed, or FAILED and on how many ranks"})
      .list();
}

std::vector<Column> doctor_columns() {
  return Columns("doctor")
      .add("check", ColumnType::text, {.unit = "", .definition = "what was looked at"})
      .add("result", ColumnType::text,
           {.unit = "",
            .definition = "pass, warn, fail, or skip where the thing does not exist here",
            .traps = "only fail makes the exit code 5"})
      .add("found", ColumnType::text,
           {.unit = "",
            .definition = "what is there, or the reason of a skip; with the ranks where they differ",
            .traps = "messages on a busy node are slower than on a free one"})
      .add("remedy", ColumnType::text, {.unit = "", .definition = "what to do about a warning or failure"})
      .list();
}

std::vector<Column> comm_columns() {
  return Columns("comm")
      .add("time_p50_us", ColumnType::float64,
           {.unit = "us",
            .definition = "time_p50_s in microseconds, in the table that `comm` and `show` print",
            .formula = "1e6 x comm.time_p50_s"})
      .add("time_p99_us", ColumnType::float64,
           {.unit = "us",
            .definition = "time_p99_s in microseconds, in the table that `comm` and `show` print",
            .formula = "1e6 x comm.time_p99_s"})
      .list();
}

}  // namespace

std::span<const Column> derived_columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> columns;
    for (const auto& part : {compare_columns(), plan_columns(), verify_columns(), doctor_columns(), comm_columns()}) {
      columns.insert(columns.end(), part.begin(), part.end());
    }
    return columns;
  }();
  return all;
}

}  // namespace shardmark::analysis

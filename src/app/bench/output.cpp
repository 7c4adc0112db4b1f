#include "app/bench/output.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "app/gather_rows.hpp"
#include "app/run_facts.hpp"
#include "base/log.hpp"
#include "base/random.hpp"

namespace shardmark::app::bench {

Output::Output(world::World& world, const CommOptions& options, base::FaultPlan& faults, const RunDevice& device,
               const std::string& backend)
    : report_(options.format, options.pairs ? analysis::CommView::groups : analysis::CommView::sizes) {
  if (options.output.empty()) {
    return;
  }
  const auto ranks = gather_rows(world, std::vector{make_rank_row(world, device)});
  world.collectively("the record", [&] {
    if (world.rank() != 0) {
      return;
    }
    config::RunConfig config;
    config.preset = config.workload.name = "comm";
    config.technique.name = "none";
    const std::string toml = to_toml(options);
    auto attributes = make_attributes(config, world);
    attributes.config_hash = fmt::format("{:016x}", base::hash_text(toml));
    writer_.emplace(record::WriterOptions{options.output, options.overwrite, &faults}, std::move(attributes), toml,
                    std::vector<record::ConfigKeyRow>{});
    writer_->append_ranks(ranks);
    writer_->append_environment(make_environment(faults.text(), "none", device, backend));
  });
}

void Output::add(const record::CommRow& row) {
  if (writer_) {
    writer_->append_comm(std::span(&row, 1));
  }
  report_.add(row);
}

void Output::finish(const Outcome& outcome) {
  const bool good = outcome.code == base::ExitCode::good;
  close(outcome.code, good ? "" : outcome.verdict);
  report_.end(outcome.verdict);
  const auto text = fmt::format("comm: {}: {}", counted(outcome.num_rows, "row"), outcome.verdict);
  good ? base::log_info(text) : base::log_error(text);
}

void Output::close_failed(base::ExitCode code, const std::string& error) noexcept {
  try {
    close(code, error);
  } catch (const std::exception& other) {
    base::log_error(other.what());
  }
}

void Output::close(base::ExitCode code, const std::string& error) {
  if (writer_) {
    writer_->finish(code == base::ExitCode::good ? "complete" : "failed", error, static_cast<int>(code));
    writer_.reset();
  }
}

}  // namespace shardmark::app::bench

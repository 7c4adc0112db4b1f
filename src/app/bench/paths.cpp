#include "app/bench/paths.hpp"

#include "app/bench/buffers.hpp"
#include "app/bench/loop.hpp"
#include "app/bench/options.hpp"
#include "app/run_transport.hpp"
#include "base/log.hpp"

namespace shardmark::app::bench {
namespace {

void connect_world(comm::CommunicatorStack& stack) {
  auto& all = stack.undecorated();
  const Case one{comm::Operation::all_reduce, base::DType::fp32, comm::Reduction::sum, 1, 1};
  Memory memory(one.message_bytes(), stack.device());
  const Trial trial(memory, one, {all.rank(), all.size()}, comm::SumOrder::fast);
  trial.clear();
  all.wait(all.start(trial.collective()));
  end_of_device_work(all);
}

}  // namespace

void judge_paths(world::World& world, comm::CommunicatorStack& stack, const PathsToJudge& paths, Outcome& outcome) {
  if (!stack.nccl_transports()) {
    return;
  }
  if (!paths.measured_world) {
    connect_world(stack);
  }
  const RunTransport transport(world, *stack.nccl_transports(), paths.nodes.empty() ? nodes_of(world) : paths.nodes,
                               paths.infiniband);
  transport.write(paths.writer);
  const auto verdict = transport.judge(paths.allow_slow_path);
  if (verdict.text.empty()) {
    return;
  }
  const auto text = in_terms_of_options(verdict.text);
  if (verdict.passed) {
    base::log_warning(text);
    return;
  }
  outcome.verdict += "; " + text;
  if (outcome.code == base::ExitCode::good) {
    outcome.code = base::ExitCode::environment;
  }
}

}  // namespace shardmark::app::bench

// Energy of steps: the difference of a counter over a block, spread over the block's rows.

#include "metrics/recorder.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/self_communicator.hpp"

namespace shardmark::metrics {
namespace {

record::StepRow row(std::int64_t step) {
  record::StepRow made;
  made.step = step;
  return made;
}

TEST(Recorder, SpreadsTheEnergyOfABlockOverItsSteps) {
  comm::SelfCommunicator alone("self");
  Recorder recorder(alone, nullptr);
  double used_j = 1000;
  recorder.set_energy_counter([&] { return used_j; });
  recorder.start_block();
  recorder.add(row(0));
  recorder.add(row(1));
  used_j += 30;
  recorder.end_block();
  used_j += 500;  // between blocks: of no step
  recorder.start_block();
  recorder.add(row(2));
  used_j += 7;
  recorder.end_block();
  recorder.end_block();  // without rows there is nothing to spread
  ASSERT_EQ(recorder.rows().size(), 3U);
  EXPECT_DOUBLE_EQ(recorder.rows()[0].energy_j, 15);
  EXPECT_DOUBLE_EQ(recorder.rows()[1].energy_j, 15);
  EXPECT_DOUBLE_EQ(recorder.rows()[2].energy_j, 7);
}

TEST(Recorder, WithoutACounterEnergyIsMissing) {
  comm::SelfCommunicator alone("self");
  Recorder recorder(alone, nullptr);
  recorder.start_block();
  recorder.add(row(0));
  recorder.end_block();
  EXPECT_TRUE(std::isnan(recorder.rows()[0].energy_j));
  recorder.set_energy_counter([] { return std::nan(""); });
  recorder.start_block();
  recorder.add(row(1));
  recorder.end_block();
  EXPECT_TRUE(std::isnan(recorder.rows()[1].energy_j));
}

}  // namespace
}  // namespace shardmark::metrics

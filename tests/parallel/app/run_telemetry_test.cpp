// What devices say of themselves reaches the record: through a stand-in for NVML, by ranks with and without a device.

#include "app/run_telemetry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "record/reader.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/record_files.hpp"

namespace shardmark::testing {
namespace {

const std::string kNvml = SM_STAND_INS "/stand_in_nvml/libnvidia-ml.so.1";
const std::string kUuid = "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

class RunTelemetryTest : public RecordFiles {
 protected:
  /// The record of rank 0 after all ranks wrote what `telemetry` has; an empty one elsewhere.
  record::Record write(app::RunTelemetry& telemetry) {
    if (test_world().rank() != 0) {
      telemetry.write(nullptr);
      return {};
    }
    auto writer = open();
    telemetry.write(&writer);
    telemetry.write_own(writer);  // a failure after it adds nothing
    writer.finish("complete", "", 0);
    return record::read_record(path());
  }
};

TEST_F(RunTelemetryTest, EveryRankReadsItsDevice) {
  auto& world = test_world();
  app::RunTelemetry telemetry(world, kUuid, kNvml);
  telemetry.start();
  const double before = telemetry.energy_j();
  EXPECT_ON_ALL_RANKS(std::abs(telemetry.energy_j() - before - 2.5) < 1e-9);  // 2500 mJ a call; doubles near 1000
  const auto record = write(telemetry);
  if (world.rank() == 0) {
    // Each rank reads at the start and at the end.
    ASSERT_EQ(record.telemetry.size(), static_cast<std::size_t>(2 * world.size()));
    ASSERT_EQ(record.health.size(), static_cast<std::size_t>(10 * world.size()));
    for (std::size_t i = 0; i < record.telemetry.size(); ++i) {
      const auto& row = record.telemetry[i];
      EXPECT_EQ(row.rank, static_cast<std::int64_t>(i / 2));
      EXPECT_DOUBLE_EQ(row.power_w, 612.345);
      EXPECT_EQ(row.clock_mhz, 1830) << "of the processors, not of the memory";
      EXPECT_EQ(row.temperature_c, 61);
      EXPECT_EQ(row.throttle, 4);
    }
    const auto pcie = std::ranges::find(record.health, "pcie_replay", [](const auto& row) { return row.counter.str(); });
    ASSERT_NE(pcie, record.health.end());
    EXPECT_EQ(pcie->before, 3);
    EXPECT_EQ(pcie->after, 3);
  }
}

TEST_F(RunTelemetryTest, RanksOnCpusAddNothing) {
  auto& world = test_world();
  const bool with_device = world.rank() == world.size() - 1;
  app::RunTelemetry telemetry(world, with_device ? kUuid : "", kNvml);
  telemetry.start();
  EXPECT_ON_ALL_RANKS(std::isnan(telemetry.energy_j()) == !with_device);
  const auto record = write(telemetry);
  if (world.rank() == 0) {
    ASSERT_EQ(record.telemetry.size(), 2U);
    EXPECT_EQ(record.telemetry.front().rank, world.size() - 1);
    EXPECT_EQ(record.health.size(), 10U);
  }
}

TEST_F(RunTelemetryTest, WithoutNvmlTheTablesStayEmpty) {
  app::RunTelemetry telemetry(test_world(), kUuid, "libno-such-nvml.so.1");
  telemetry.start();
  EXPECT_ON_ALL_RANKS(std::isnan(telemetry.energy_j()));
  const auto record = write(telemetry);
  EXPECT_TRUE(record.telemetry.empty());
  EXPECT_TRUE(record.health.empty());
}

TEST_F(RunTelemetryTest, AfterAFailureRank0WritesItsOwn) {
  app::RunTelemetry telemetry(test_world(), kUuid, kNvml);
  telemetry.start();
  if (test_world().rank() == 0) {
    auto writer = open();
    telemetry.write_own(writer);
    writer.finish("failed", "planted", 1);
    const auto record = record::read_record(path());
    EXPECT_EQ(record.telemetry.size(), 2U);
    EXPECT_EQ(record.health.size(), 10U);
  }
}

}  // namespace
}  // namespace shardmark::testing

// What the counting decorator says of collectives that run without the host: how many and how large, and no times.

#include "comm/counting_communicator.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/self_communicator.hpp"

namespace shardmark::comm {
namespace {

/// As over NCCL: complete for the host as soon as it is started.
class Enqueuing final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] const std::string& name() const override { return self_.name(); }
  [[nodiscard]] Ticket start(const Collective& /*collective*/) override { return ++issued_; }
  [[nodiscard]] bool test(Ticket /*ticket*/) override { return true; }
  void wait(Ticket /*ticket*/) override {}
  void progress() override {}
  [[nodiscard]] bool runs_by_itself() const override { return true; }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    return self_.split(color, name);
  }

 private:
  SelfCommunicator self_;
  Ticket issued_ = 0;
};

TEST(CountingCommunicator, ClaimsNoTimesOfWhatRunsWithoutTheHost) {
  CountingCommunicator counting(std::make_unique<Enqueuing>());
  float on_device = 0;
  float on_host = 0;
  counting.all_reduce({&on_device, 1}, Purpose::gradient, 1).wait();
  counting.all_reduce(host_buffer(&on_host, 1, base::DType::fp32), Purpose::gradient, 2).wait();
  counting.barrier().wait();
  const auto rows = counting.counts().rows();
  ASSERT_EQ(rows.size(), 3U) << "one of the device, one of the host, one barrier";
  for (const double time : {rows[0].total_s, rows[0].exposed_s, rows[0].min_s, rows[0].median_s, rows[0].max_s}) {
    EXPECT_TRUE(std::isnan(time));
  }
  for (const auto at : {1, 2}) {
    const auto& row = rows[static_cast<std::size_t>(at)];
    for (const double time : {row.total_s, row.exposed_s, row.min_s, row.median_s, row.max_s}) {
      EXPECT_TRUE(std::isfinite(time)) << "row " << at;
    }
  }
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_EQ(rows[0].wire_bytes, 4);
  EXPECT_TRUE(std::isfinite(counting.counts().exposed_s()));
}

}  // namespace
}  // namespace shardmark::comm

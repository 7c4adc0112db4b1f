// Devices as a stand-in for the driver tells them, the choice of a rank, and devices that several ranks took.

#include "device/visible_devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace shardmark::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kDriver = SM_STAND_INS "/stand_in_cuda/libcuda.so.1";

/// What the stand-in does for the life of this object.
class StandIn {
 public:
  explicit StandIn(const char* mode) { setenv("SM_STAND_IN_CUDA", mode, 1); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  ~StandIn() { unsetenv("SM_STAND_IN_CUDA"); }
};

std::string message_of(int num_visible, int node_rank, int node_size, DeviceSharing sharing = DeviceSharing::refused) {
  try {
    static_cast<void>(choose_device(num_visible, node_rank, node_size, sharing));
  } catch (const base::EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST(VisibleDevices, AreListedAsTheDriverTellsThem) {
  const auto found = cuda_devices(kDriver);
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.reason, "");
  EXPECT_EQ(found.driver_cuda, 13000);
  ASSERT_EQ(found.devices.size(), 2U);
  const auto& second = found.devices[1];
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.name, "Stand-in B");
  EXPECT_EQ(second.uuid, "GPU-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb");
  EXPECT_EQ(second.pci, "00ff:5e:00.0");
  EXPECT_EQ(second.memory_bytes, std::int64_t{40} << 30);
  EXPECT_EQ(second.capability_major, 8);
  EXPECT_EQ(second.numa_node, -1) << "no such device in /sys";
  EXPECT_THAT(second.peers, ElementsAre(0));
  EXPECT_THAT(found.devices[0].peers, ElementsAre(1));
  EXPECT_EQ(found.devices[0].capability_major, 9);
}

TEST(VisibleDevices, SayWhyThereAreNone) {
  const auto none = cuda_devices("libno-such-driver.so.1");
  EXPECT_THAT(none.devices, IsEmpty());
  EXPECT_EQ(none.problem, "");
  EXPECT_THAT(none.reason, HasSubstr("no NVIDIA driver: libno-such-driver.so.1"));
  {
    const StandIn mode("none");
    const auto hidden = cuda_devices(kDriver);
    EXPECT_THAT(hidden.devices, IsEmpty());
    EXPECT_EQ(hidden.problem, "");
    EXPECT_THAT(hidden.reason, HasSubstr("shows no device"));
    EXPECT_EQ(hidden.driver_cuda, 13000);
  }
  {
    const StandIn mode("broken");
    const auto broken = cuda_devices(kDriver);
    EXPECT_EQ(broken.problem, "cuInit returned error 802");
    EXPECT_THAT(broken.reason, HasSubstr("cuInit returned error 802"));
  }
  const StandIn mode("silent");
  const auto silent = cuda_devices(kDriver);
  EXPECT_THAT(silent.devices, IsEmpty()) << "ordinals would shift";
  EXPECT_EQ(silent.problem, "device 1 does not answer");
}

TEST(VisibleDevices, WithoutDirectAccessThereAreNoPeers) {
  const StandIn mode("apart");
  const auto found = cuda_devices(kDriver);
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_THAT(found.devices[0].peers, IsEmpty());
}

TEST(DeviceChoice, TheOnlyOneOrThatOfTheNodeLocalRank) {
  EXPECT_EQ(choose_device(1, 3, 4), 0) << "each rank sees a device of its own";
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(choose_device(4, rank, 4), rank);
    EXPECT_EQ(choose_device(8, rank, 4), rank);
  }
}

TEST(DeviceChoice, MoreRanksThanDevicesAreRefusedOnEveryRank) {
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(message_of(2, rank, 3), HasSubstr("3 ranks on a node with 2 visible CUDA devices"));
    EXPECT_THAT(message_of(2, rank, 3), HasSubstr("--ntasks-per-node=2"));
    EXPECT_EQ(choose_device(2, rank, 3, DeviceSharing::allowed), rank % 2);
  }
  EXPECT_EQ(message_of(2, 1, 2), "");
}

TEST(DeviceChoice, NoneIsRefusedWithTheRemedy) {
  EXPECT_THAT(message_of(0, 0, 1), HasSubstr("no CUDA device is visible"));
  EXPECT_THAT(message_of(0, 0, 1, DeviceSharing::allowed), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(DuplicateDevices, AreNamedWithTheirRanks) {
  const std::vector<std::string> hosts{"a", "a", "a", "b", "b", "b"};
  const std::vector<std::string> uuids{"GPU-1", "GPU-2", "GPU-1", "GPU-2", "GPU-3", "GPU-3"};
  const auto shared = duplicate_devices(uuids, hosts);
  ASSERT_EQ(shared.size(), 2U) << "GPU-2 of two hosts is two devices";
  EXPECT_EQ(shared[0].uuid, "GPU-1");
  EXPECT_EQ(shared[0].host, "a");
  EXPECT_THAT(shared[0].world_ranks, ElementsAre(0, 2));
  EXPECT_THAT(shared[1].world_ranks, ElementsAre(4, 5));
  const auto text = shared_devices_text(shared);
  EXPECT_THAT(text, HasSubstr("ranks 0 and 2 took the same device GPU-1 of a; ranks 4 and 5 took the same device GPU-3 of b"));
  EXPECT_THAT(text, HasSubstr("srun --gpus-per-task=1"));
}

TEST(DuplicateDevices, ThreeRanksAndNone) {
  const std::vector<std::string> hosts(3, "a");
  const std::vector<std::string> same(3, "GPU-1");
  EXPECT_THAT(shared_devices_text(duplicate_devices(same, hosts)), HasSubstr("ranks 0, 1 and 2 took"));
  const std::vector<std::string> without(3, "");
  EXPECT_THAT(duplicate_devices(without, hosts), IsEmpty()) << "ranks on CPUs share nothing";
  EXPECT_THAT(duplicate_devices({}, {}), IsEmpty());
}

}  // namespace
}  // namespace shardmark::device

// Sockets between nodes that have RDMA: found, named, refused unless allowed.

#include "comm/slow_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.hpp"

namespace shardmark::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<int> kNodes{0, 0, 1, 1};
const PeerPath kSocketAcross{1, 2, PathClass::socket, "NET/Socket/0"};
const PeerPath kSocketWithin{0, 1, PathClass::socket, "NET/Socket/0"};
const std::vector<PeerPath> kPaths{{0, 1, PathClass::p2p, "P2P/CUMEM"},
                                   kSocketWithin,
                                   {1, 2, PathClass::ib, "NET/IB/0"},
                                   {1, 2, PathClass::plugin, "NET/AWS Libfabric/0"},
                                   {1, 3, PathClass::p2p, "P2P/MNNVL"},
                                   {0, 3, PathClass::unknown, "?"},
                                   kSocketAcross,
                                   {0, 4, PathClass::socket, "NET/Socket/0"},
                                   {-1, 2, PathClass::socket, "NET/Socket/0"}};

TEST(SlowPath, SocketsBetweenNodesWithRdmaAlone) {
  EXPECT_THAT(slow_paths(kPaths, kNodes, true), ElementsAre(kSocketAcross));
  EXPECT_THAT(slow_paths(kPaths, kNodes, false), IsEmpty()) << "there is no faster way";
  EXPECT_THAT(slow_paths(kPaths, std::vector{0, 0, 0, 0}, true), IsEmpty());
  EXPECT_THAT(slow_paths({}, kNodes, true), IsEmpty());
}

TEST(SlowPath, RefusedUnlessAllowedAndNamedEitherWay) {
  const auto refused = judge_slow_paths(std::vector{kSocketAcross}, false);
  EXPECT_FALSE(refused.passed);
  EXPECT_THAT(refused.text, HasSubstr("rank 1 -> 2 (NET/Socket/0); "));
  EXPECT_THAT(refused.text, HasSubstr("comm.allow_slow_path = true"));
  EXPECT_THAT(refused.text, HasSubstr("NCCL_IB_DISABLE"));
  const auto allowed = judge_slow_paths(std::vector{kSocketAcross}, true);
  EXPECT_TRUE(allowed.passed);
  EXPECT_THAT(allowed.text, HasSubstr("rank 1 -> 2 (NET/Socket/0); allowed"));
  for (const bool allow : {false, true}) {
    const auto none = judge_slow_paths({}, allow);
    EXPECT_TRUE(none.passed);
    EXPECT_EQ(none.text, "");
  }
}

TEST(SlowPath, ManyPairsAreCounted) {
  std::vector<PeerPath> slow;
  for (int peer = 10; peer < 16; ++peer) {
    slow.push_back({0, peer, PathClass::socket, "NET/Socket/0"});
  }
  const auto text = judge_slow_paths(slow, false).text;
  EXPECT_THAT(text, HasSubstr("rank 0 -> 13 (NET/Socket/0) and 2 more;"));
  EXPECT_THAT(text, Not(HasSubstr("-> 14")));
}

class RdmaPort : public ::testing::Test {
 protected:
  bool active_with(const std::string& state) {
    const auto port = folder_.path() / "mlx5_0" / "ports" / "1";
    std::filesystem::create_directories(port);
    testing::write_file((port / "state").string(), state);
    return has_active_rdma_port(folder_.path().string());
  }
  testing::TemporaryFolder folder_;
};

TEST_F(RdmaPort, IsThereOnceOneIsActive) {
  EXPECT_FALSE(has_active_rdma_port(folder_.file("none")));
  EXPECT_FALSE(has_active_rdma_port(folder_.path().string()));
  EXPECT_FALSE(active_with("1: DOWN\n"));
  EXPECT_FALSE(active_with("2: INIT\n"));
  EXPECT_FALSE(active_with("5: ACTIVE_DEFER\n"));
  EXPECT_FALSE(active_with(""));
  EXPECT_TRUE(active_with("4: ACTIVE\n"));
  // A second port of another device, down, changes nothing.
  std::filesystem::create_directories(folder_.path() / "mlx5_1" / "ports" / "1");
  testing::write_file(folder_.file("mlx5_1/ports/1/state"), "1: DOWN\n");
  EXPECT_TRUE(has_active_rdma_port(folder_.path().string()));
}

}  // namespace
}  // namespace shardmark::comm

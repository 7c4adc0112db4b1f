// Which way messages go, from lines as NCCL 2.28 and 2.30 write them.

#include "comm/transport_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace shardmark::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The log of one line of this process: "host-1:321:345 [2] NCCL INFO ".
std::string says(const std::string& message, const std::string& writer = "host-1:321:345") {
  return writer + " [2] NCCL INFO " + message + "\n";
}

std::vector<PeerPath> paths_of(const std::string& text) {
  return parse_transport_log(text).paths;
}

TEST(TransportLog, LinesOfEachTransport) {
  struct Case {
    const char* line;
    PeerPath expected;
  };
  const Case cases[] = {
      // 2.28 and 2.30 alike.
      {"Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", {0, 1, PathClass::p2p, "P2P/CUMEM/read"}},
      {"Channel 23/1 : 10[2] -> 14[6] via P2P/CUMEM", {10, 14, PathClass::p2p, "P2P/CUMEM"}},
      {"Channel 01/0 : 1[1] -> 0[0] via P2P/direct pointer/read", {1, 0, PathClass::p2p, "P2P/direct pointer/read"}},
      {"Channel 01/0 : 1[1] -> 0[0] via P2P/IPC/CE", {1, 0, PathClass::p2p, "P2P/IPC/CE"}},
      {"Channel 00/0 : 3[3] -> 4[0] via P2P/MNNVL", {3, 4, PathClass::p2p, "P2P/MNNVL"}},
      {"Channel 00/0 : 0[0] -> 2[2] via P2P/indirect/1[1]", {0, 2, PathClass::p2p, "P2P/indirect/1[1]"}},
      {"Channel 03/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA", {7, 8, PathClass::ib, "NET/IB/0/GDRDMA"}},
      {"Channel 03/0 : 15[7] -> 0[0] [receive] via NET/IB/3/GDRDMA(PCI)/Shared",
       {15, 0, PathClass::ib, "NET/IB/3/GDRDMA(PCI)/Shared"}},
      {"Channel 03/0 : 3[3] -> 8[0] [send] via NET/IB/0(1)", {3, 8, PathClass::ib, "NET/IB/0(1)"}},
      {"Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0", {0, 1, PathClass::socket, "NET/Socket/0"}},
      {"Channel 04/1 : 12[4] -> 2[2] [receive] via NET/AWS Libfabric/1/GDRDMA/Shared",
       {12, 2, PathClass::plugin, "NET/AWS Libfabric/1/GDRDMA/Shared"}},
      {"Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2", {47, 39, PathClass::plugin, "NET/IBext_v8/2"}},
      // Shared memory in 2.28 and in 2.30, without the number of the connection.
      {"Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", {0, 1, PathClass::shm, "SHM/direct/direct"}},
      {"Channel 00 : 0[0] -> 1[1] via SHM/direct", {0, 1, PathClass::shm, "SHM/direct"}},
      // Devices by bus address, as before 2.18.
      {"Channel 01 : 24[101c0] -> 31[a01d0] via P2P/IPC/read", {24, 31, PathClass::p2p, "P2P/IPC/read"}},
      {"Channel 00/0 : 0[0] -> 1[1] via CARRIER/pigeon", {0, 1, PathClass::unknown, "CARRIER/pigeon"}},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_THAT(paths_of(says(line)), ElementsAre(expected)) << line;
  }
}

TEST(TransportLog, NamesAreTheRecords) {
  std::string names;
  for (const auto path :
       {PathClass::p2p, PathClass::shm, PathClass::ib, PathClass::socket, PathClass::plugin, PathClass::unknown}) {
    names += std::string(name_of(path)) + " ";
  }
  EXPECT_EQ(names, "P2P SHM IB socket plugin unknown ");
}

TEST(TransportLog, ChannelsOfOnePairCountOnce) {
  const PeerPath first{7, 8, PathClass::ib, "NET/IB/0/GDRDMA"};
  const PeerPath second{7, 8, PathClass::ib, "NET/IB/1/GDRDMA"};
  EXPECT_THAT(paths_of(says("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA") +
                       says("Channel 01/0 : 7[7] -> 8[0] [send] via NET/IB/1/GDRDMA") +
                       says("Channel 02/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA")),
              ElementsAre(first, second));
}

TEST(TransportLog, TheNetworksName) {
  EXPECT_EQ(parse_transport_log(says("Using network AWS Libfabric") + says("Using network Socket")).network, "AWS Libfabric");
  EXPECT_EQ(parse_transport_log(says("Using network IB\r")).network, "IB");
  EXPECT_EQ(parse_transport_log(says("Initialized NET plugin IB")).network, "");
}

TEST(TransportLog, OtherLinesArePassedOver) {
  EXPECT_THAT(paths_of(""), IsEmpty());
  EXPECT_THAT(paths_of(says("Connected all rings, use ring PXN 0 GDR 1") + says("Trees [0] 1/-1/-1->0->-1") +
                       says("CollNet 00/0 : 1 [send] via COLLNET/SHARP/0/GDRDMA") + says("Channel 00/02 : 0 1 2 3") +
                       says("P2P Chunksize set to 524288") + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" +
                       "host-1:321:345 [0] misc/socket.cc:88 NCCL WARN Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"),
              IsEmpty());
}

TEST(TransportLog, NoCutOrGarbledLineIsTaken) {
  const std::string line = says("Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2");
  for (std::size_t length = 0; length < line.size(); ++length) {
    EXPECT_THAT(paths_of(line.substr(0, length)), IsEmpty()) << line.substr(0, length);
  }
  const std::string start = line.substr(0, line.find("ext_v8"));  // "NET/IB", and another line into it
  EXPECT_THAT(paths_of(start + says("Channel 00 : 0[0] -> 1[1] via SHM/direct")), IsEmpty());
  // A line whose head is cut may end in the middle of anything.
  for (std::size_t cut = 1; cut < line.size(); ++cut) {
    for (const auto& path : paths_of(line.substr(cut))) {
      EXPECT_EQ(path, (PeerPath{47, 39, PathClass::plugin, "NET/IBext_v8/2"})) << line.substr(cut);
    }
  }
}

const std::string kInit228 =
    "ncclCommInitRankConfig comm 0x8ec0ac0 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId c8000 commId 0x49bbd7790311d5eb - Init "
    "START";
const std::string kInit230 = "[Rank 2] " + kInit228;
// A split from it, in which this process is another rank, and one in which it is the same.
const std::string kSplit =
    "ncclCommSplit comm 0x9ec0ac0 rank 1 nranks 2 cudaDev 2 nvmlDev 2 busId c8000 parent 0x8ec0ac0 childCount 1 color 0 key 2- "
    "Init START";
const std::string kSplitAlike =
    "ncclCommSplit comm 0xaec0ac0 rank 2 nranks 3 cudaDev 2 nvmlDev 2 busId c8000 parent 0x8ec0ac0 childCount 2 color 0 key 2- "
    "Init START";

TEST(TransportLog, OnlyTheFirstCommunicatorsLines) {
  const PeerPath before{2, 3, PathClass::p2p, "P2P/CUMEM"};
  const PeerPath after{3, 2, PathClass::ib, "NET/IB/0"};
  for (const auto& init : {kInit228, kInit230}) {
    const std::string text = says(init) + says("Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM") + says(kSplit) +
                             says("Channel 00/0 : 1[2] -> 0[0] via SHM/direct") +  // the split's
                             says("Channel 00/0 : 0[0] -> 1[2] [receive] via NET/Socket/0") +
                             says("Channel 00/0 : 3[3] -> 2[2] [receive] via NET/IB/0");
    EXPECT_THAT(paths_of(text), ElementsAre(before, after)) << init;
    // From here on a line may be of either: none is taken.
    EXPECT_THAT(paths_of(text + says(kSplitAlike) + says("Channel 00/0 : 2[2] -> 0[0] via SHM/direct")),
                ElementsAre(before, after));
  }
}

TEST(TransportLog, ASecondCommunicatorOfItsOwnIsNotTheFirst) {
  std::string other = kInit230;
  other.replace(other.find("rank 2"), 6, "rank 0").replace(other.find("0x49bb"), 6, "0x11aa");
  EXPECT_THAT(paths_of(says(kInit230) + says(other) + says("Channel 00/0 : 0[2] -> 1[3] via SHM/direct")), IsEmpty());
}

TEST(TransportLog, ALineOfARankThatThisProcessNeverWasIsNotTaken) {
  EXPECT_THAT(paths_of(says(kInit230) + says("Channel 00/0 : 3[2] -> 1[3] via SHM/direct")), IsEmpty());
}

TEST(TransportLog, ProcessesMayWriteIntoOneLog) {
  std::string init_3 = kInit230;
  init_3.replace(init_3.find(" rank 2"), 7, " rank 3");
  const PeerPath from_2{2, 3, PathClass::p2p, "P2P/CUMEM"};
  const PeerPath from_3{3, 0, PathClass::shm, "SHM/direct"};
  // The same ranks are the first communicator's of one process each; threads and times change.
  EXPECT_THAT(paths_of(says(kInit230) + says(init_3, "host-1:322:1") + says(kSplit, "[2026-11-30 10:00:00] host-1:321:999") +
                       says("Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM", "[2026-11-30 10:00:01] host-1:321:1000") +
                       says("Channel 00/0 : 1[2] -> 0[0] via P2P/IPC", "[2026-11-30 10:00:01] host-1:321:1001") +
                       says("Channel 00 : 3[3] -> 0[0] via SHM/direct", "host-1:322:2")),
              ElementsAre(from_2, from_3));
}

}  // namespace
}  // namespace shardmark::comm

// From NCCL's log to the record: through the double, which writes the lines of NCCL when two ranks first need each other.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <optional>

#include "app/run_transport.hpp"
#include "base/environment.hpp"
#include "comm/factory.hpp"
#include "record/reader.hpp"
#include "tests/parallel/nccl/fixture.hpp"
#include "tests/support/nccl_double_log.hpp"
#include "tests/support/record_files.hpp"

namespace shardmark::testing {
namespace {

class NcclTransport : public RecordFiles {
 protected:
  world::World& world_ = test_world();
  std::unique_ptr<device::Device> device_ = device::make_host_device(true);
  std::optional<comm::CommunicatorStack> stack_;

  /// All ranks' communicator, over `path` by the double's words, that was used once.
  void connect(const std::string& path) {
    set_nccl_path(path);
    comm::FactoryOptions options;
    options.backend = "nccl";
    options.check = false;
    options.device = device_.get();
    options.device_uuid = "GPU-" + std::to_string(world_.rank());
    options.init_deadline_s = 30;
    stack_.emplace(comm::make_communicator(world_, options));
    EXPECT_ON_ALL_RANKS(stack_->nccl_transports()->log.paths.empty()) << "nobody has needed anybody yet";
    use(stack_->communicator());
  }

  static void use(comm::Communicator& communicator) {
    std::array<float, 4> data{};
    communicator.all_reduce({data.data(), 4}, comm::Purpose::gradient, 1).wait();
    communicator.barrier().wait();
  }

  /// The node of each rank, were there two: even and odd ranks.
  [[nodiscard]] std::vector<int> two_nodes() const {
    std::vector<int> nodes;
    for (int rank = 0; rank < world_.size(); ++rank) {
      nodes.push_back(rank % 2);
    }
    return nodes;
  }

  /// This rank's peers of the other of two nodes.
  [[nodiscard]] int num_across() const { return world_.rank() % 2 == 0 ? world_.size() / 2 : (world_.size() + 1) / 2; }

  /// A folder as the kernel's, with one port.
  std::string rdma(const std::string& state) {
    const std::filesystem::path port = std::filesystem::path(rdma_folder_.path()) / "mlx5_0" / "ports" / "1";
    std::filesystem::create_directories(port);
    write_file((port / "state").string(), state);
    return rdma_folder_.path().string();
  }

  /// Rank 0's table; empty elsewhere.
  std::vector<record::TransportRow> written(const app::RunTransport& transport) {
    if (world_.rank() != 0) {
      transport.write(nullptr);
      return {};
    }
    auto writer = open();
    transport.write(&writer);
    writer.finish("complete", "", 0);
    return record::read_record(path()).transport;
  }

  void expect_every_pair(const std::vector<record::TransportRow>& rows, const std::string& path) {
    if (world_.rank() != 0) {
      return;
    }
    std::size_t next = 0;
    for (int rank = 0; rank < world_.size(); ++rank) {
      for (int peer = 0; peer < world_.size(); ++peer) {
        if (rank != peer) {
          ASSERT_LT(next, rows.size());
          EXPECT_EQ(rows[next].rank, rank);
          EXPECT_EQ(rows[next].peer, peer);
          EXPECT_EQ(rows[next++].path.str(), path);
        }
      }
    }
    EXPECT_EQ(next, rows.size());
  }

  TemporaryFolder rdma_folder_;
};

TEST_F(NcclTransport, EveryPeersPathReachesTheRecord) {
  connect("P2P/CUMEM/read");
  EXPECT_ON_ALL_RANKS(base::environment_variable("NCCL_LAUNCH_ORDER_IMPLICIT") == "1");
  const auto transports = stack_->nccl_transports().value();
  EXPECT_ON_ALL_RANKS(transports.unknown_because.empty() && transports.log.network == "Socket");
  const app::RunTransport transport(world_, transports, two_nodes());
  expect_every_pair(written(transport), "P2P");
  EXPECT_ON_ALL_RANKS(transport.check(false).has_value() == (world_.size() > 1));
}

TEST_F(NcclTransport, SentAndReceivedOverTheNetworkIsOneRow) {
  connect("NET/IB/0/GDRDMA");
  const app::RunTransport transport(world_, stack_->nccl_transports().value(), two_nodes(), rdma("4: ACTIVE\n"));
  expect_every_pair(written(transport), "IB");
  const auto check = transport.check(false);
  EXPECT_ON_ALL_RANKS(world_.size() == 1 || (check && check->passed && check->found == 0));
}

TEST_F(NcclTransport, SocketsBetweenNodesWithRdmaFailTheCheck) {
  connect("NET/Socket/0");
  const auto transports = stack_->nccl_transports().value();
  const app::RunTransport transport(world_, transports, two_nodes(), rdma("4: ACTIVE\n"));
  expect_every_pair(written(transport), "socket");
  if (world_.size() == 1) {
    EXPECT_FALSE(transport.check(false));
    return;
  }
  const auto refused = transport.check(false);
  ASSERT_TRUE(refused);
  EXPECT_ON_ALL_RANKS(refused->name == "transport" && !refused->passed && refused->found == 2 * num_across());
  const auto allowed = transport.check(true);
  EXPECT_ON_ALL_RANKS(allowed && allowed->passed && allowed->found == 2 * num_across());
  const app::RunTransport without(world_, transports, two_nodes(), rdma("1: DOWN\n"));
  const auto passed = without.check(false);
  EXPECT_ON_ALL_RANKS(passed && passed->passed && passed->found == 0);
  const app::RunTransport one_node(world_, transports, std::vector<int>(two_nodes().size(), 0), rdma("4: ACTIVE\n"));
  EXPECT_ON_ALL_RANKS(!one_node.check(false)) << "nothing to check on one node";
}

TEST_F(NcclTransport, OfASplitNothingIsTakenForTheWorlds) {
  connect("P2P/CUMEM/read");
  set_nccl_path("NET/Socket/0");
  const auto half = stack_->communicator().split(world_.rank() % 2, "half");
  use(*half);
  const app::RunTransport transport(world_, stack_->nccl_transports().value(), two_nodes());
  expect_every_pair(written(transport), "P2P");
}

TEST_F(NcclTransport, WhereTheUserDirectsTheLogNothingIsKnown) {
  const app::RunTransport transport(world_, {"NCCL_DEBUG = \"WARN\" directs NCCL's log elsewhere", {}}, two_nodes(),
                                    rdma("4: ACTIVE\n"));
  const auto rows = written(transport);
  EXPECT_ON_ALL_RANKS(!transport.check(false));
  if (world_.rank() == 0) {
    ASSERT_EQ(rows.size(), static_cast<std::size_t>(world_.size()));
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      EXPECT_EQ(rows[rank].rank, static_cast<std::int64_t>(rank));
      EXPECT_EQ(rows[rank].peer, -1);
      EXPECT_EQ(rows[rank].path.str(), "unknown");
    }
  }
}

TEST_F(NcclTransport, TheWorldKnowsItsNodes) {
  const auto nodes = app::nodes_of(world_);
  EXPECT_ON_ALL_RANKS(nodes == std::vector<int>(static_cast<std::size_t>(world_.size()), 0)) << "tests run on one machine";
}

TEST_F(NcclTransport, OverMpiThereIsNoLog) {
  comm::FactoryOptions options;
  options.backend = "mpi";
  EXPECT_ON_ALL_RANKS(!comm::make_communicator(world_, options).nccl_transports());
}

}  // namespace
}  // namespace shardmark::testing

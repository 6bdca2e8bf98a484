// The host's RDMA devices in the tree of a run. A tree that write_tree() has written stands in for
// the host.
#include "door/tree/host_devices.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

#include "door/tree/tree.h"

namespace softhca::door {
namespace {

namespace fs = std::filesystem;

class DoorHostDevices : public ::testing::Test {
 protected:
  DoorHostDevices() {
    auto name = (fs::temp_directory_path() / "softhca-host-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    host_ = directory_ / "host";
  }
  ~DoorHostDevices() override { fs::remove_all(directory_); }

  void write_host(const std::vector<std::pair<std::string, unsigned>>& devices) {
    std::vector<DeviceIdentity> all;
    for (const auto& [name, number] : devices) {
      all.emplace_back().name = name;
      all.back().number = number;
    }
    ASSERT_TRUE(write_tree(host_, all));
  }

  fs::path directory_;
  fs::path host_;
};

TEST_F(DoorHostDevices, AHostWithoutDevicesHasNone) {
  const auto none = HostDevices::find(host_);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.first_free(), 0U);
}

TEST_F(DoorHostDevices, OursAreNumberedBehindUverbsAndMlx5) {
  write_host({{"rocep1s0", 4}});
  EXPECT_EQ(HostDevices::find(host_).first_free(), 5U);
  fs::remove_all(host_);
  write_host({{"mlx5_11", 0}, {"mlx5_bond_0", 1}});
  EXPECT_EQ(HostDevices::find(host_).first_free(), 12U);
}

TEST_F(DoorHostDevices, TheHostsAreFoundThroughTheTreeBesideOurs) {
  write_host({{"mlx5_0", 0}, {"rxe0", 1}});
  const auto host = HostDevices::find(host_);
  const auto root = directory_ / "root";
  DeviceIdentity ours;
  ours.name = "mlx5_2";
  ours.number = host.first_free();
  ASSERT_TRUE(write_tree(root, {&ours, 1}));
  ASSERT_TRUE(host.link_into(root));
  for (const auto* path :
       {"sys/class/infiniband/mlx5_0", "sys/class/infiniband/rxe0",
        "sys/class/infiniband_verbs/uverbs1", "sys/dev/char/231:193", "dev/infiniband/uverbs0"}) {
    EXPECT_EQ(fs::canonical(root / path), fs::canonical(host_ / path)) << path;
  }
  for (const auto* path : {"sys/class/infiniband/mlx5_2", "sys/class/infiniband_verbs/uverbs2",
                           "sys/class/infiniband_verbs/abi_version"}) {
    EXPECT_TRUE(fs::canonical(root / path).string().starts_with(root.string())) << path;
  }
  // rdma_cm serves the run's devices, so the host's is not linked.
  EXPECT_FALSE(fs::exists(fs::symlink_status(root / "dev/infiniband/mlx5_0")));
  EXPECT_EQ(fs::read_symlink(root / "dev/infiniband/rdma_cm"), "/dev/null");
}

TEST_F(DoorHostDevices, AMarkDistinguishesThemFromOthers) {
  write_host({{"mlx5_0", 0}});
  const auto mark = HostDevices::find(host_).mark();
  EXPECT_EQ(HostDevices::find(host_).mark(), mark);
  EXPECT_TRUE(parse_device_numbers("2+1-" + mark));
  fs::remove_all(host_);
  write_host({{"rxe0", 0}});
  EXPECT_NE(HostDevices::find(host_).mark(), mark);
}

TEST(DoorDeviceNumbers, AWordIsTakenWholeOrNotAtAll) {
  EXPECT_EQ(parse_device_numbers("32")->count, 32U);
  EXPECT_EQ(parse_device_numbers("1+31-0123456789abcdef")->first, 31U);
  for (const auto* word : {"", "0", "33", "x", "1x", "1+", "1+2", "1+2x", "+1", "1+32-0", "2+31-0",
                           "-1", "1+4294967295-0", "1+0-/../..", "4294967297"}) {
    EXPECT_EQ(parse_device_numbers(word), std::nullopt) << word;
  }
}

}  // namespace
}  // namespace softhca::door

#include "door/tree/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace softhca::door {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::array<std::uint8_t, 16> kLinkLocal{0xfe, 0x80, 0, 0,    0,    0,    0,    0,
                                                  0,    0xc9, 3, 0xff, 0xfe, 0x12, 0x34, 0x50};
constexpr std::array<std::uint8_t, 16> kMapped{0, 0, 0,    0,    0,  0, 0, 0,
                                               0, 0, 0xff, 0xff, 10, 0, 0, 1};

class DoorTree : public ::testing::Test {
 protected:
  DoorTree() {
    // The tree has hundreds of names, so keep it in memory if possible.
    const fs::path memory = "/dev/shm";
    const auto base = fs::exists(memory) ? memory : fs::temp_directory_path();
    auto name = (base / "softhca-tree-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    root_ = directory_ / "root";
    device_.node_guid = 0x0002c90300123450;
    device_.device_id = 0x1013;
    device_.subsystem_id = 0x0008;
    device_.firmware = "12.28.2006";
    device_.board_id = "SHC_0000000001";
    device_.mac = {0x02, 0xc9, 0x03, 0x12, 0x34, 0x50};
    device_.gids = {kLinkLocal, kLinkLocal, kMapped, kMapped};
    device_.interface = "eth7";
  }
  ~DoorTree() override { fs::remove_all(directory_); }

  util::Result<void> write() { return write_tree(root_, {&device_, 1}); }

  std::string read(const fs::path& path) {
    std::ifstream file(root_ / path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The result of realpath, relative to the root.
  std::string resolved(const fs::path& path) {
    return "/" + fs::relative(fs::canonical(root_ / path), fs::canonical(root_)).string();
  }

  fs::path directory_;
  fs::path root_;
  DeviceIdentity device_;
};

TEST_F(DoorTree, LibibverbsFindsTheDeviceInTheOrderInWhichItLooks) {
  ASSERT_TRUE(write());
  const fs::path verbs = "sys/class/infiniband_verbs/uverbs0";
  EXPECT_EQ(read(verbs / "ibdev"), "mlx5_0\n");
  EXPECT_EQ(read(verbs / "dev"), "231:192\n");
  EXPECT_EQ(read(verbs / "abi_version"), "1\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/abi_version"), "6\n");
  const fs::path ib = "sys/class/infiniband/mlx5_0";
  EXPECT_EQ(read(ib / "node_type"), "1: CA\n");
  EXPECT_EQ(read(ib / "device/modalias"),
            "pci:v000015B3d00001013sv000015B3sd00000008bc02sc00i00\n");
  EXPECT_EQ(read(ib / "node_guid"), "0002:c903:0012:3450\n");
  EXPECT_EQ(read(ib / "sys_image_guid"), "0002:c903:0012:3450\n");
  EXPECT_EQ(read(ib / "fw_ver"), "12.28.2006\n");
  EXPECT_EQ(read(ib / "board_id"), "SHC_0000000001\n");
  EXPECT_EQ(read(ib / "hca_type"), "MT4115\n");
  EXPECT_EQ(read(ib / "hw_rev"), "0\n");
}

TEST_F(DoorTree, ThePortIsActiveEthernet) {
  ASSERT_TRUE(write());
  const fs::path port = "sys/class/infiniband/mlx5_0/ports/1";
  const std::pair<const char*, const char*> files[] = {{"state", "4: ACTIVE\n"},
                                                       {"phys_state", "5: LinkUp\n"},
                                                       {"rate", "100 Gb/sec (4X EDR)\n"},
                                                       {"lid", "0x0\n"},
                                                       {"lid_mask_count", "0\n"},
                                                       {"sm_lid", "0x0\n"},
                                                       {"sm_sl", "0\n"},
                                                       {"cap_mask", "0x00010000\n"},
                                                       {"link_layer", "Ethernet\n"},
                                                       {"pkeys/0", "0xffff\n"},
                                                       {"counters/port_xmit_data", "0\n"},
                                                       {"hw_counters/out_of_buffer", "0\n"},
                                                       {"hw_counters/np_cnp_sent", "0\n"},
                                                       {"hw_counters/lifespan", "12\n"}};
  for (const auto& [name, text] : files) EXPECT_EQ(read(port / name), text) << name;
}

// NCCL reads the types of GID entries before it has read their addresses.
TEST_F(DoorTree, GidsAlternateBetweenTheVersionsBeforeTheyAreKnown) {
  device_.gids = {{}, {}, kMapped, kMapped};
  ASSERT_TRUE(write());
  const fs::path port = "sys/class/infiniband/mlx5_0/ports/1";
  EXPECT_EQ(read(port / "gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(read(port / "gids/3"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  EXPECT_EQ(read(port / "gids/255"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_FALSE(fs::exists(root_ / port / "gids/256"));
  for (const auto* index : {"0", "2"}) {
    EXPECT_EQ(read(port / "gid_attrs/types" / index), "IB/RoCE v1\n");
    EXPECT_EQ(read(port / "gid_attrs/ndevs" / index), "eth7\n");
  }
  EXPECT_EQ(read(port / "gid_attrs/types/3"), "RoCE v2\n");
  EXPECT_EQ(read(port / "gid_attrs/ndevs/3"), "eth7\n");
  // As in Linux, every entry has a file, but a file without a GID cannot be read.
  for (const auto* index : {"4", "255"}) {
    EXPECT_EQ(read(port / "gid_attrs/types" / index), "");
    EXPECT_EQ(read(port / "gid_attrs/ndevs" / index), "");
  }
  EXPECT_FALSE(fs::exists(root_ / port / "gid_attrs/types/256"));
}

TEST_F(DoorTree, ThePciFunctionIsAConnectX4) {
  ASSERT_TRUE(write());
  const fs::path pci = "sys/bus/pci/devices/5348:00:00.0";
  EXPECT_EQ(read(pci / "vendor"), "0x15b3\n");
  EXPECT_EQ(read(pci / "device"), "0x1013\n");
  EXPECT_EQ(read(pci / "subsystem_vendor"), "0x15b3\n");
  EXPECT_EQ(read(pci / "subsystem_device"), "0x0008\n");
  EXPECT_EQ(read(pci / "class"), "0x020000\n");
  EXPECT_EQ(read(pci / "revision"), "0x00\n");
  EXPECT_EQ(read(pci / "max_link_width"), "16\n");
  EXPECT_THAT(read(pci / "uevent"), HasSubstr("PCI_SLOT_NAME=5348:00:00.0\n"));
  EXPECT_EQ(read(pci / "net/eth7/address"), "02:c9:03:12:34:50\n");
  const auto configuration = read(pci / "config");
  ASSERT_EQ(configuration.size(), 256U);
  EXPECT_EQ(configuration.substr(0, 4), "\xb3\x15\x13\x10");
  EXPECT_EQ(configuration.substr(8, 4), std::string("\0\0\0\x02", 4));
  EXPECT_EQ(configuration.substr(0x2c, 4), std::string("\xb3\x15\x08\0", 4));
  const auto resource = read(pci / "resource");
  EXPECT_EQ(std::count(resource.begin(), resource.end(), '\n'), 13);
}

/// libmlx5 parses the first processors from this file, in the kernel's format.
TEST_F(DoorTree, ProcessorsAreTheHosts) {
  ASSERT_TRUE(write());
  const fs::path pci = "sys/bus/pci/devices/5348:00:00.0";
  const auto mask = read(pci / "local_cpus");
  EXPECT_EQ(mask.size() % 9, 0U) << mask;
  unsigned bits = 0;
  for (const char digit : mask) {
    if (::isxdigit(digit)) bits += std::popcount(std::stoul(std::string(1, digit), nullptr, 16));
  }
  EXPECT_EQ(bits, static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_FALSE(read(pci / "local_cpulist").empty());
}

// The active MTU of the port follows from the interface's MTU.
TEST_F(DoorTree, TheInterfaceHasTheHostsMtu) {
  device_.interface = "lo";
  ASSERT_TRUE(write());
  std::ifstream host("/sys/class/net/lo/mtu");
  std::string mtu = "65536";
  std::getline(host, mtu);
  EXPECT_EQ(read("sys/bus/pci/devices/5348:00:00.0/net/lo/mtu"), mtu + "\n");
}

TEST_F(DoorTree, LinksLeadWhereTheKernelsLead) {
  ASSERT_TRUE(write());
  const std::string pci = "/sys/devices/pci5348:00/5348:00:00.0";
  EXPECT_EQ(resolved("sys/class/infiniband/mlx5_0"), pci + "/infiniband/mlx5_0");
  EXPECT_EQ(resolved("sys/class/infiniband/mlx5_0/device"), pci);
  EXPECT_EQ(resolved("sys/class/infiniband/mlx5_0/subsystem"), "/sys/class/infiniband");
  EXPECT_EQ(resolved("sys/class/infiniband_verbs/uverbs0/device"), pci);
  EXPECT_EQ(resolved("sys/class/infiniband_verbs/uverbs0/subsystem"),
            "/sys/class/infiniband_verbs");
  EXPECT_EQ(resolved("sys/dev/char/231:192"), pci + "/infiniband_verbs/uverbs0");
  EXPECT_EQ(resolved("sys/bus/pci/devices/5348:00:00.0"), pci);
  EXPECT_EQ(resolved("sys/bus/pci/drivers/mlx5_core/5348:00:00.0"), pci);
  EXPECT_EQ(resolved(pci.substr(1) + "/driver"), "/sys/bus/pci/drivers/mlx5_core");
  EXPECT_EQ(fs::read_symlink(root_ / "sys/class/infiniband/mlx5_0"),
            "../../devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0");
}

TEST_F(DoorTree, DeviceFilesAreCharacterDevicesThatMayBeUsed) {
  ASSERT_TRUE(write());
  for (const auto* name : {"dev/infiniband/uverbs0", "dev/char/231:192"}) {
    const auto path = root_ / name;
    struct stat status;
    ASSERT_EQ(::stat(path.c_str(), &status), 0) << name;
    EXPECT_TRUE(S_ISCHR(status.st_mode)) << name;
    EXPECT_EQ(::access(path.c_str(), R_OK | W_OK), 0) << name;
  }
}

TEST_F(DoorTree, TheConnectionManagerIsServedAndMadsAreNot) {
  ASSERT_TRUE(write());
  EXPECT_EQ(read("sys/class/misc/rdma_cm/abi_version"), "4\n");
  EXPECT_EQ(read("sys/class/misc/rdma_cm/dev"), "10:58\n");
  EXPECT_THAT(read("sys/class/misc/rdma_cm/uevent"), HasSubstr("DEVNAME=infiniband/rdma_cm\n"));
  EXPECT_EQ(fs::read_symlink(root_ / "sys/class/misc/rdma_cm/subsystem"), "/sys/class/misc");
  EXPECT_TRUE(fs::is_symlink(root_ / "dev/infiniband/rdma_cm"));
  for (const auto* name : {"sys/class/infiniband_mad", "sys/class/infiniband_cm"}) {
    EXPECT_FALSE(fs::exists(root_ / name)) << name;
  }
}

TEST_F(DoorTree, TwoDevicesLieBesideEachOther) {
  auto second = device_;
  second.name = "mlx5_1";
  second.number = 1;
  second.interface = "";
  const DeviceIdentity both[] = {device_, second};
  ASSERT_TRUE(write_tree(root_, both));
  EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/dev"), "231:193\n");
  EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
  EXPECT_THAT(read("sys/class/infiniband_verbs/uverbs1/uevent"), HasSubstr("DEVMODE=0666\n"));
  EXPECT_EQ(resolved("sys/class/infiniband/mlx5_1/device"), "/sys/devices/pci5348:00/5348:00:01.0");
  EXPECT_FALSE(fs::exists(root_ / "sys/class/infiniband/mlx5_1/device/net"));
  EXPECT_EQ(read("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0"), "");
}

// Each network has a tree, and creating files takes most of the time.
TEST_F(DoorTree, FilesOfOneContentAreOneFileOfADevice) {
  auto second = device_;
  second.name = "mlx5_1";
  second.number = 1;
  const DeviceIdentity both[] = {device_, second};
  ASSERT_TRUE(write_tree(root_, both));
  const fs::path first_port = root_ / "sys/class/infiniband/mlx5_0/ports/1";
  const fs::path second_port = root_ / "sys/class/infiniband/mlx5_1/ports/1";
  EXPECT_TRUE(fs::equivalent(first_port / "gids/4", first_port / "gids/255"));
  EXPECT_FALSE(fs::equivalent(first_port / "gids/0", first_port / "gids/2"));
  EXPECT_FALSE(fs::equivalent(first_port / "gids/4", second_port / "gids/4"));
  std::size_t names = 0;
  std::set<ino_t> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    struct stat status;
    ASSERT_EQ(::lstat(entry.path().c_str(), &status), 0) << entry.path();
    if (!S_ISREG(status.st_mode)) continue;
    ++names;
    files.insert(status.st_ino);
  }
  EXPECT_GT(names, 1600U);
  EXPECT_LT(files.size(), 150U);
}

TEST_F(DoorTree, WithoutDevicesThereAreTheDirectories) {
  ASSERT_TRUE(write_tree(root_, {}));
  EXPECT_TRUE(fs::is_empty(root_ / "sys/class/infiniband"));
  EXPECT_FALSE(fs::exists(root_ / "dev/infiniband/uverbs0"));
}

TEST_F(DoorTree, NamesAndNumbersThatDoNotFitAreRefused) {
  const auto refused = [&](auto change) {
    auto device = device_;
    change(device);
    return !write_tree(root_, {&device, 1});
  };
  EXPECT_TRUE(refused([](auto& device) { device.name = "../../etc"; }));
  EXPECT_TRUE(refused([](auto& device) { device.name = ".."; }));
  EXPECT_TRUE(refused([](auto& device) { device.name = ""; }));
  EXPECT_TRUE(refused([](auto& device) { device.name = "a\nb"; }));
  EXPECT_TRUE(refused([](auto& device) { device.interface = "a/b"; }));
  EXPECT_TRUE(refused([](auto& device) { device.number = kUverbsCount; }));
  EXPECT_TRUE(refused([](auto& device) { device.gids.resize(257); }));
  EXPECT_FALSE(fs::exists(root_));
}

TEST_F(DoorTree, TheErrorNamesTheFileThatCannotBeWritten) {
  ASSERT_TRUE(write());
  const auto again = write();
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("infiniband_verbs/abi_version"));
  EXPECT_THAT(again.error().message, HasSubstr("File exists"));
}

}  // namespace
}  // namespace softhca::door

#include "door/tree/paths.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace softhca::door {
namespace {

constexpr std::string_view kRoot = "/run/user/7/softhca-1/root";

class DoorPaths : public ::testing::Test {
 protected:
  DoorPaths() { EXPECT_TRUE(map_.set_root(kRoot)); }

  /// The answer without the root, or "host" for a path that is not served. A path that leaves the
  /// tree is also "host's".
  std::string served(std::string_view path) {
    PathBuffer text;
    text.fill('x');
    return shown(text, map_.serve(path, text));
  }

  std::string served_in(std::string_view base, std::string_view path) {
    PathBuffer text;
    text.fill('x');
    return shown(text, map_.serve(base, path, text));
  }

  std::string stripped(std::string path) {
    path.resize(map_.strip(path.data(), path.size()));
    return path;
  }

  PathMap map_;

 private:
  static std::string shown(const PathBuffer& text, std::size_t size) {
    if (size == 0) return "host";
    EXPECT_EQ(text[size], '\0');
    const std::string path(text.data(), size);
    return path.starts_with(kRoot) ? path.substr(kRoot.size()) : "host's " + path;
  }
};

TEST_F(DoorPaths, PathsThatRdmaProgramsReadAreInTheTree) {
  for (const auto* path :
       {"/sys/class/infiniband", "/sys/class/infiniband/mlx5_0/ports/1/gids/3",
        "/sys/class/infiniband/mlx5_0/device/local_cpus", "/sys/class/infiniband_verbs/abi_version",
        "/sys/class/infiniband_mad/abi_version", "/sys/class/infiniband_cm",
        "/sys/class/infiniband_ucma/abi_version", "/sys/class/misc/rdma_cm/abi_version",
        "/sys/bus/pci/devices/5348:00:00.0/numa_node",
        "/sys/devices/pci5348:00/5348:00:00.0/vendor", "/sys/dev/char/231:192/ibdev",
        "/dev/infiniband", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm",
        "/dev/char/231:192"}) {
    EXPECT_EQ(served(path), path);
    EXPECT_TRUE(may_be_served(path)) << path;
  }
}

TEST_F(DoorPaths, EverythingElseIsTheHosts) {
  for (const auto* path : {"",
                           "/",
                           "/sys",
                           "/sys/class",
                           "/sys/class/infiniband_foo",
                           "/sys/class/infiniban",
                           "/sys/class/net/eth0",
                           "/sys/class/misc",
                           "/sys/class/misc/rdma_cm2",
                           "/dev",
                           "/dev/null",
                           "/dev/infiniband2",
                           "/dev/char/10:58",
                           "/dev/char/23:1",
                           "/sys/devices/pci0000:00",
                           "/sys/bus/pci/devices",
                           "/sys/bus/pci/devices/0000:00:1f.0",
                           "/sys/bus/pci/drivers",
                           "/tmp/sys/class/infiniband",
                           "/etc/infiniband/uverbs",
                           "sys/class/infiniband",
                           "infiniband",
                           "//",
                           "/..",
                           "/../.."}) {
    EXPECT_EQ(served(path), "host") << path;
  }
}

TEST_F(DoorPaths, SlashesAndDotsCountAsInTheKernel) {
  EXPECT_EQ(served("//sys///class/./infiniband//mlx5_0"), "/sys/class/infiniband/mlx5_0");
  EXPECT_EQ(served("/tmp/../sys/class/infiniband"), "/sys/class/infiniband");
  EXPECT_EQ(served("/../sys/class/infiniband"), "/sys/class/infiniband");
  EXPECT_EQ(served("/sys/class/net/../infiniband/mlx5_0"), "/sys/class/infiniband/mlx5_0");
  EXPECT_EQ(served("/sys/class/infiniband/"), "/sys/class/infiniband/");
  EXPECT_EQ(served("/sys/class/infiniband/mlx5_0/."), "/sys/class/infiniband/mlx5_0/");
  EXPECT_EQ(served("/dev/infiniband/uverbs0/"), "/dev/infiniband/uverbs0/");
}

TEST_F(DoorPaths, ADotDotBehindALinkOfTheTreeIsTheKernels) {
  EXPECT_EQ(served("/sys/class/infiniband/mlx5_0/../../net"),
            "/sys/class/infiniband/mlx5_0/../../net");
  EXPECT_EQ(served("/sys/class/infiniband/mlx5_0/device/../"),
            "/sys/class/infiniband/mlx5_0/device/../");
}

TEST_F(DoorPaths, ADotDotOutOfAServedDirectoryLeadsToTheHost) {
  // The host has no such directory, so ".." cannot leave it.
  EXPECT_EQ(served("/sys/class/infiniband/../net/eth0"), "host's /sys/class/net/eth0");
  EXPECT_EQ(served("/sys/class/infiniband/.."), "host's /sys/class");
  EXPECT_EQ(served("/sys/class/infiniband/../"), "host's /sys/class");
  EXPECT_EQ(served("/dev/infiniband/../null"), "host's /dev/null");
  EXPECT_EQ(served("/dev/infiniband/../.."), "host's /");
  EXPECT_EQ(served("/sys/devices/pci5348:00/../system/node"), "host's /sys/devices/system/node");
  EXPECT_EQ(served("/sys/class/infiniband/../infiniband_verbs"), "/sys/class/infiniband_verbs");
}

TEST_F(DoorPaths, NothingLeadsAboveTheRoot) {
  EXPECT_EQ(served("/dev/infiniband/x/../../.."), "/dev/infiniband/x/../../..");
  EXPECT_EQ(served("/dev/infiniband/x/../../../.."), "host");
  EXPECT_EQ(served("/dev/infiniband/x/../../../../etc/passwd"), "host");
}

TEST_F(DoorPaths, ARelativePathIsOfItsDirectory) {
  EXPECT_EQ(served_in("/sys/class", "infiniband/mlx5_0"), "/sys/class/infiniband/mlx5_0");
  EXPECT_EQ(served_in("/sys/class/net", "../infiniband"), "/sys/class/infiniband");
  EXPECT_EQ(served_in("/", "dev/infiniband/uverbs0"), "/dev/infiniband/uverbs0");
  EXPECT_EQ(served_in("/tmp", "infiniband"), "host");
  EXPECT_EQ(served_in("/tmp", "/dev/infiniband"), "/dev/infiniband");
  EXPECT_EQ(served_in("(unreachable)/sys/class", "infiniband"), "host");
  EXPECT_EQ(served_in("/sys/class", ""), "host");
}

TEST_F(DoorPaths, ADirectoryOfTheTreeIsTakenForWhatItShows) {
  const std::string root(kRoot);
  EXPECT_EQ(served_in(root + "/dev/infiniband", "uverbs0"), "/dev/infiniband/uverbs0");
  EXPECT_EQ(served(root + "/dev/infiniband/uverbs0"), "/dev/infiniband/uverbs0");
  EXPECT_EQ(served(root), "host");
  EXPECT_EQ(served(root + "x/dev/infiniband"), "host");
}

TEST_F(DoorPaths, APathThatIsTooLongIsTheHosts) {
  const std::string path = "/sys/class/infiniband/";
  const auto room = PATH_MAX - 1 - kRoot.size() - path.size();
  EXPECT_EQ(served(path + std::string(room - 1, 'a')), path + std::string(room - 1, 'a'));
  EXPECT_EQ(served(path + std::string(room + 1, 'a')), "host");
  EXPECT_EQ(served(path + std::string(3 * PATH_MAX, 'a')), "host");
  EXPECT_EQ(served("/" + std::string(3 * PATH_MAX, '/') + path), path);
}

TEST_F(DoorPaths, DeviceFilesAreKnownByNameAndByNumber) {
  const auto number = [&](std::string_view path) -> int {
    PathBuffer text;
    const auto size = map_.serve(path, text);
    const auto found = map_.device_file({text.data(), size});
    return found ? static_cast<int>(*found) : -1;
  };
  EXPECT_EQ(number("/dev/infiniband/uverbs0"), 0);
  EXPECT_EQ(number("/dev/infiniband//uverbs31"), 31);
  EXPECT_EQ(number("/dev/char/231:192"), 0);
  EXPECT_EQ(number("/dev/char/231:195"), 3);
  for (const auto* path :
       {"/dev/infiniband/uverbs", "/dev/infiniband/uverbs0/", "/dev/infiniband/uverbs00",
        "/dev/infiniband/uverbs-1", "/dev/infiniband/uverbs1x", "/dev/infiniband/umad0",
        "/dev/infiniband/uverbs4294967296", "/dev/char/231:64",
        "/dev/char/231:", "/dev/char/231:0192", "/sys/class/infiniband_verbs/uverbs0"}) {
    EXPECT_EQ(number(path), -1) << path;
  }
}

TEST_F(DoorPaths, DeviceFilesBelowTheFirstOfOursAreTheHosts) {
  map_.set_first(2);
  for (const auto* path : {"/dev/infiniband/uverbs1", "/dev/char/231:193"}) {
    PathBuffer text;
    const auto size = map_.serve(path, text);
    ASSERT_NE(size, 0U) << path;
    EXPECT_EQ(map_.device_file({text.data(), size}), std::nullopt) << path;
  }
  for (const auto* path : {"/dev/infiniband/uverbs2", "/dev/char/231:194"}) {
    PathBuffer text;
    const auto size = map_.serve(path, text);
    EXPECT_EQ(map_.device_file({text.data(), size}), 2U) << path;
  }
}

TEST_F(DoorPaths, AnAnswerBelowTheRootLosesIt) {
  const std::string root(kRoot);
  EXPECT_EQ(stripped(root + "/sys/devices/pci5348:00"), "/sys/devices/pci5348:00");
  EXPECT_EQ(stripped(root), "/");
  EXPECT_EQ(stripped(root + "2/sys"), root + "2/sys");
  EXPECT_EQ(stripped("../../devices/pci5348:00"), "../../devices/pci5348:00");
  EXPECT_EQ(stripped("/home/" + root), "/home/" + root);
  EXPECT_EQ(stripped(""), "");
}

TEST(DoorPathMap, WithoutARootServesNothing) {
  PathMap map;
  PathBuffer text;
  EXPECT_EQ(map.serve("/dev/infiniband/uverbs0", text), 0U);
  std::string path = "/sys";
  EXPECT_EQ(map.strip(path.data(), path.size()), path.size());
  EXPECT_FALSE(map.set_root(""));
  EXPECT_FALSE(map.set_root("run/root"));
  EXPECT_FALSE(map.set_root("/"));
  EXPECT_FALSE(map.set_root("/" + std::string(PATH_MAX, 'a')));
  EXPECT_EQ(map.root(), "");
  EXPECT_TRUE(map.set_root("/run/root//"));
  EXPECT_EQ(map.root(), "/run/root");
}

/// Random paths of the relevant words. An answer lies below the root, does not change when it is
/// served again, is terminated, and contains one of the words. A path that leaves the tree becomes
/// the host's, and has no further "..".
TEST_F(DoorPaths, RandomPathsStayInTheBufferAndBelowTheRoot) {
  constexpr std::array<std::string_view, 16> kPieces = {
      "/",    "..",      ".",    "sys",     "class",   "infiniband", "infiniband_verbs",
      "dev",  "uverbs0", "char", "231:192", "devices", "pci5348:00", "bus/pci",
      "\x80", "a"};
  std::mt19937 random(1);
  unsigned count = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string path = random() % 4 == 0 ? std::string(kRoot) : "";
    for (auto parts = random() % 12; parts-- > 0;) {
      path += '/';
      path += kPieces[random() % kPieces.size()];
    }
    if (random() % 50 == 0) path += std::string(random() % (2 * PATH_MAX), 'b');
    PathBuffer text;
    const auto size = map_.serve(path, text);
    if (size == 0) continue;
    ++count;
    ASSERT_LT(size, text.size());
    const std::string answer(text.data());
    ASSERT_EQ(answer.size(), size);
    ASSERT_TRUE(may_be_served(path)) << path;
    if (!answer.starts_with(std::string(kRoot) + "/")) {
      ASSERT_TRUE(answer.starts_with("/")) << path;
      ASSERT_EQ(answer.find(".."), std::string::npos) << path;
      ASSERT_NE(path.find(".."), std::string::npos) << path;
      continue;
    }
    ASSERT_EQ(served(answer), answer.substr(kRoot.size())) << path;
    ASSERT_EQ(served(stripped(answer)), answer.substr(kRoot.size())) << path;
  }
  EXPECT_GT(count, 1000U);
}

}  // namespace
}  // namespace softhca::door

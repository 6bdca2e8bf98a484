#include "door/tree/live_path.h"

#include <gtest/gtest.h>

#include <string>

namespace softhca::door {
namespace {

using Kind = LivePath::Kind;

TEST(DoorLivePath, GidsAndCountersOfAPortAreFilledWhenTheyAreOpened) {
  const std::string_view port = "/sys/class/infiniband/mlx5_3/ports/1/";
  const std::pair<std::string_view, Kind> files[] = {{"gids/7", Kind::kGid},
                                                     {"gid_attrs/types/7", Kind::kGidType},
                                                     {"gid_attrs/ndevs/7", Kind::kGidInterface},
                                                     {"counters/7", Kind::kCounter},
                                                     {"hw_counters/7", Kind::kHardwareCounter}};
  for (const auto& [name, kind] : files) {
    const auto path = std::string(port) + std::string(name);
    const auto live = find_live(path);
    ASSERT_TRUE(live) << path;
    EXPECT_EQ(live->kind, kind) << path;
    EXPECT_EQ(live->device, "mlx5_3");
    EXPECT_EQ(live->name, "7");
    EXPECT_EQ(live->index(), 7u);
  }
  const std::string_view by_pci =
      "/sys/devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0/ports/1/counters/port_xmit_data";
  ASSERT_TRUE(find_live(by_pci));
  EXPECT_EQ(find_live(by_pci)->device, "mlx5_0");
  EXPECT_FALSE(find_live(by_pci)->index());
}

TEST(DoorLivePath, OtherFilesAreReadFromTheTree) {
  for (const auto* path :
       {"/sys/class/infiniband/mlx5_0/ports/1/rate", "/sys/class/infiniband/mlx5_0/ports/2/state",
        "/sys/class/infiniband/mlx5_0/ports/1/state/", "/sys//ports/1/state",
        "/sys/class/infiniband/mlx5_0/ports/1/gids", "/sys/class/infiniband/mlx5_0/ports/1/gids/",
        "/sys/class/infiniband/mlx5_0/ports/2/gids/0",
        "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "/dev/infiniband/ports/1/gids/0", "", "/",
        "/sys//ports/1/gids/0", "/ports/1/gids/0"}) {
    EXPECT_FALSE(find_live(path)) << path;
  }
}

TEST(DoorLivePath, TheStateOfAPortMayChange) {
  const auto state = find_live("/sys/class/infiniband/mlx5_1/ports/1/state");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->kind, Kind::kState);
  EXPECT_EQ(state->device, "mlx5_1");
  const auto physical = find_live("/sys/class/infiniband/mlx5_1/ports/1/phys_state");
  ASSERT_TRUE(physical);
  EXPECT_EQ(physical->kind, Kind::kPhysicalState);
}

TEST(DoorLivePath, TheGidTableEnds) {
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  for (const auto* directory : {"gids/", "gid_attrs/types/", "gid_attrs/ndevs/"}) {
    EXPECT_TRUE(find_live(port + directory + "0")) << directory;
    EXPECT_TRUE(find_live(port + directory + "255")) << directory;
    for (const auto* name : {"256", "1000", "4294967296", "-1", "07", "00", "7x", "x"}) {
      EXPECT_FALSE(find_live(port + directory + name)) << directory << name;
    }
  }
}

}  // namespace
}  // namespace softhca::door

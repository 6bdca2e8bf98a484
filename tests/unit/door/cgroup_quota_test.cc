// cgroup CPU quotas. Any cgroup on the path to the root may set one.
#include "door/engine/cgroup_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace softhca::door {
namespace {

class DoorCgroupQuota : public testing::Test {
 protected:
  DoorCgroupQuota() { std::filesystem::create_directories(root_); }
  ~DoorCgroupQuota() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("cgroups-" + std::to_string(::getpid()));
};

TEST_F(DoorCgroupQuota, IsTheLowestOnTheWayToTheRoot) {
  write("cpu.max", "max 100000");
  write("slurm/cpu.max", "800000 100000");
  write("slurm/job/cpu.max", "300000 100000");
  write("slurm/job/step/cpu.max", "max 100000");
  EXPECT_EQ(cgroup_quota(root_, "0::/slurm/job/step\n"), 3U);
  EXPECT_EQ(cgroup_quota(root_, "0::/slurm\n"), 8U);
  EXPECT_EQ(cgroup_quota(root_, "0::/\n"), std::nullopt);
}

TEST_F(DoorCgroupQuota, AQuotaOfVersion1IsInTwoFiles) {
  write("cpu,cpuacct/docker/cpu.cfs_quota_us", "250000");
  write("cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_quota(root_, "5:memory:/docker\n4:cpu,cpuacct:/docker\n0::/\n"), 2U);
  EXPECT_EQ(cgroup_quota(root_, "4:cpu,cpuacct:/\n"), std::nullopt);
}

TEST_F(DoorCgroupQuota, NonsenseIsNoLimit) {
  for (const auto* const text : {"", "\n", "0", "0:", ":::", "0::"}) {
    EXPECT_EQ(cgroup_quota(root_, text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace softhca::door

// The devices of a run, as its options and the environment of its programs say.
#include "run/device_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DeviceOptions, OneDeviceNeedsNoVariable) {
  EXPECT_THAT(DeviceOptions{}.variables({}), IsEmpty());
}

TEST(DeviceOptions, AProgramFindsNumberAddressesAndLossInItsEnvironment) {
  const DeviceOptions seen{
      .addresses = {"10.0.0.1", "10.0.0.2"}, .devices = 3, .loss = 0.5, .loss_seed = 7};
  EXPECT_EQ(seen.check(), "");
  EXPECT_THAT(
      seen.variables({.count = seen.count()}),
      ElementsAre("SOFTHCA_ADDRESS=10.0.0.1,10.0.0.2", "SOFTHCA_DEVICES=3", "SOFTHCA_LOSS=0.5,7"));
}

TEST(DeviceOptions, DevicesAreNumberedFromZero) {
  EXPECT_THAT(ShownDevices{.count = 2}.names(), ElementsAre("mlx5_0", "mlx5_1"));
}

TEST(DeviceOptions, OptionsThatContradictEachOtherAreRefused) {
  EXPECT_NE((DeviceOptions{.devices = 3, .models = {"connectx", "connectx"}}.check()), "");
  EXPECT_NE((DeviceOptions{.addresses = {"10.0.0.1", "10.0.0.2"}}.check()), "");
  EXPECT_NE((DeviceOptions{.addresses = {"10.0.0.1", "10.0.0.1"}, .devices = 2}.check()), "");
  EXPECT_EQ((DeviceOptions{.devices = 2, .models = {"connectx", "connectx"}}.check()), "");
}

}  // namespace
}  // namespace softhca::run

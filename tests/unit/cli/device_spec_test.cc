#include "cli/device_spec.h"

#include <gtest/gtest.h>

namespace softhca::cli {
namespace {

util::Result<connectx::DeviceOptions> parse_nic(std::string_view text, unsigned index) {
  auto spec = parse_device(text, index);
  if (!spec) return tl::unexpected(spec.error());
  return std::get<connectx::DeviceOptions>(*spec);
}

TEST(DeviceSpec, ABareModelGetsAddressesOfItsPlace) {
  const auto first = parse_nic("connectx", 0);
  const auto second = parse_nic("connectx", 1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->name, "connectx1");
  EXPECT_NE(first->mac, second->mac);
  EXPECT_NE(first->node_guid, second->node_guid);
  EXPECT_NE(first->node_guid, 0u);
}

TEST(DeviceSpec, KeysChangeWhatTheyName) {
  const auto options = parse_nic("connectx,mac=02:00:00:00:0a:ff,guid=1234,vectors=8,name=left", 3);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->mac.to_u64(), 0x020000000AFFu);
  EXPECT_EQ(options->node_guid, 0x1234u);
  EXPECT_EQ(options->msix_vectors, 8);
  EXPECT_EQ(options->name, "left");
}

TEST(DeviceSpec, AnSdxiFunctionHasAsManyContextsAsAskedFor) {
  const auto spec = parse_device("sdxi,contexts=16,name=mover", 2);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).max_cxt, 15);
  EXPECT_EQ(std::get<sdxi::DeviceOptions>(*spec).name, "mover");
}

class BadDeviceSpec : public testing::TestWithParam<const char*> {};

TEST_P(BadDeviceSpec, IsRefusedWithTheReason) {
  const auto options = parse_device(GetParam(), 0);
  ASSERT_FALSE(options);
  EXPECT_FALSE(options.error().message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadDeviceSpec,
    testing::Values("", "connectx7", "connectx,", "connectx,mac", "connectx,mac=1",
                    "connectx,mac=01:00:00:00:00:00", "connectx,guid=0", "connectx,guid=xyz",
                    "connectx,vectors=1", "connectx,vectors=65", "connectx,name=", "connectx,a=b",
                    "sdxi,mac=02:00:00:00:00:01", "sdxi,contexts=0", "sdxi,contexts=65537"));

}  // namespace
}  // namespace softhca::cli

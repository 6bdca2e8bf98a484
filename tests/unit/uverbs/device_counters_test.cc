// The port counters that sysfs shows.
#include "uverbs/device_counters.h"

#include <gtest/gtest.h>

#include "door/tree/counter_names.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

TEST(UverbsDeviceCounters, EveryFileOfTheTreeHasAValueAndNoOtherName) {
  Program program;
  const auto all = read_counters(program.device());
  ASSERT_TRUE(all);
  for (const auto name : door::kPortCounters) EXPECT_TRUE(port_counter(*all, name)) << name;
  for (const auto name : door::kHardwareCounters) EXPECT_TRUE(hardware_counter(*all, name)) << name;
  EXPECT_FALSE(port_counter(*all, "out_of_buffer"));
  EXPECT_FALSE(hardware_counter(*all, "port_xmit_data"));
  EXPECT_FALSE(hardware_counter(*all, "lifespan"));
}

// PortXmitData is in words of 4 bytes (IBTA 16.1.4.5).
TEST(UverbsDeviceCounters, EachNameHasItsOwnPlace) {
  DeviceCounters all{};
  for (std::size_t i = 0; i != all.size(); ++i) all[i] = std::uint64_t{1} << i;
  EXPECT_EQ(port_counter(all, "port_rcv_data"), (1u | 4u) >> 2);
  EXPECT_EQ(port_counter(all, "port_rcv_packets"), 2u | 8u);
  EXPECT_EQ(port_counter(all, "unicast_xmit_packets"), 32u);
  EXPECT_EQ(port_counter(all, "multicast_xmit_packets"), 128u);
  EXPECT_EQ(port_counter(all, "symbol_error"), 0u);
  std::uint64_t seen = 0;
  for (const auto name : door::kHardwareCounters) {
    const auto value = *hardware_counter(all, name);
    EXPECT_EQ(seen & value, 0u) << name;
    seen |= value;
  }
}

}  // namespace
}  // namespace softhca::uverbs

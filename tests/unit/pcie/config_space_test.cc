#include "pcie/config_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "util/endian.h"

namespace softhca::pcie {
namespace {

using ::testing::ElementsAre;

constexpr ConfigSpace::Identity kIdentity{.vendor_id = 0x15b3,
                                          .device_id = 0x1013,
                                          .subsystem_vendor_id = 0x15b3,
                                          .subsystem_id = 0x0050,
                                          .class_code = 0x020700,
                                          .revision_id = 1};
constexpr std::array<Bar, 3> kBars{
    {{.size = 32u << 20, .is_64bit = true, .prefetchable = true}, {}, {.size = 4096}}};
constexpr Msix::Layout kMsix{.vectors = 64, .bar = 0, .table_offset = 0x2000, .pba_offset = 0x3000};

class ConfigSpaceTest : public ::testing::Test {
 protected:
  std::uint32_t read(std::uint32_t at, std::size_t width) {
    std::array<std::byte, 4> out{};
    config_.read(at, std::span(out).first(width));
    return util::load_le32(out.data());
  }
  ConfigSpace::Effects write(std::uint32_t at, std::size_t width, std::uint32_t value) {
    std::array<std::byte, 4> in;
    util::store_le32(in.data(), value);
    return config_.write(at, std::span(in).first(width));
  }
  std::vector<std::uint32_t> capability_ids() {
    std::vector<std::uint32_t> ids;
    for (auto at = read(0x34, 1); at != 0 && ids.size() < 48; at = read(at + 1, 1)) {
      ids.push_back(read(at, 1));
    }
    return ids;
  }
  ConfigSpace config_{kIdentity, kBars, kMsix};
};

TEST_F(ConfigSpaceTest, HeaderHoldsTheIdentity) {
  EXPECT_EQ(read(0x00, 4), 0x101315b3u);
  EXPECT_EQ(read(0x08, 4), 0x02070001u);
  EXPECT_EQ(read(0x0e, 1), 0u);  // header type 0
  EXPECT_EQ(read(0x2c, 4), 0x005015b3u);
  EXPECT_EQ(read(0x3d, 1), 0u);  // no legacy interrupt
}

TEST_F(ConfigSpaceTest, AnAbsentFunctionReadsAsOnesUntilItIsPutBack) {
  write(0x04, 2, 0x0006);
  config_.set_present(false);
  config_.reset();
  EXPECT_EQ(read(0x00, 4), 0xffffffffu);
  EXPECT_EQ(read(ConfigSpace::kPowerManagementAt, 4), 0xffffffffu);
  EXPECT_FALSE(config_.in_d0()) << "no register is reached";
  write(ConfigSpace::kPowerManagementAt + 4, 2, 0);
  write(0x04, 2, 0x0006);
  EXPECT_FALSE(config_.in_d0());
  EXPECT_FALSE(config_.may_send_requests());
  config_.reset();
  EXPECT_EQ(read(0x00, 4), 0xffffffffu);
  config_.set_present(true);
  config_.reset();
  EXPECT_EQ(read(0x00, 4), 0x101315b3u);
  EXPECT_TRUE(config_.in_d0());
  EXPECT_EQ(read(0x04, 2), 0u) << "it comes back reset";
}

TEST_F(ConfigSpaceTest, IdentityCannotBeWritten) {
  write(0x00, 4, 0xffffffff);
  write(0x08, 4, 0xffffffff);
  write(0x2c, 4, 0xffffffff);
  EXPECT_EQ(read(0x00, 4), 0x101315b3u);
  EXPECT_EQ(read(0x08, 4), 0x02070001u);
  EXPECT_EQ(read(0x2c, 4), 0x005015b3u);
}

TEST_F(ConfigSpaceTest, BarReadsBackItsSizeWhenAllOnesAreWritten) {
  for (std::uint32_t at = 0x10; at < 0x28; at += 4) write(at, 4, 0xffffffff);
  EXPECT_EQ(read(0x10, 4), 0xfe00000cu);  // 32 MiB, 64 bits, prefetchable
  EXPECT_EQ(read(0x14, 4), 0xffffffffu);
  EXPECT_EQ(read(0x18, 4), 0xfffff000u);  // 4 KiB, 32 bits
  EXPECT_EQ(read(0x1c, 4), 0u);
  EXPECT_EQ(read(0x24, 4), 0u);
}

TEST_F(ConfigSpaceTest, BarHoldsTheAddressThatTheHostAssigns) {
  write(0x10, 4, 0xf200000f);
  write(0x14, 4, 0x00000012);
  write(0x18, 4, 0xfebf0123);
  EXPECT_EQ(config_.bar_address(0), 0x12f2000000u);
  EXPECT_EQ(config_.bar_address(2), 0xfebf0000u);
  EXPECT_EQ(read(0x10, 4), 0xf200000cu);
}

TEST_F(ConfigSpaceTest, BarSizingWorksByteByByte) {
  for (std::uint32_t at = 0x10; at < 0x18; ++at) write(at, 1, 0xff);
  EXPECT_EQ(read(0x10, 4), 0xfe00000cu);
  EXPECT_EQ(read(0x14, 4), 0xffffffffu);
}

TEST_F(ConfigSpaceTest, RomBarIsNotImplemented) {
  write(0x30, 4, 0xffffffff);
  EXPECT_EQ(read(0x30, 4), 0u);
}

TEST_F(ConfigSpaceTest, CommandEnablesMemoryAndBusMaster) {
  EXPECT_FALSE(config_.memory_enabled());
  EXPECT_FALSE(config_.bus_master_enabled());
  write(0x04, 2, 0xffff);
  EXPECT_TRUE(config_.memory_enabled());
  EXPECT_TRUE(config_.bus_master_enabled());
  EXPECT_EQ(read(0x04, 2), 0x0146u);  // no I/O space, no special cycles, no legacy interrupt
  write(0x04, 2, 0x0002);
  EXPECT_FALSE(config_.bus_master_enabled());
}

TEST_F(ConfigSpaceTest, StatusSaysThatThereAreCapabilities) { EXPECT_EQ(read(0x06, 2), 0x0010u); }

TEST_F(ConfigSpaceTest, CapabilityListIsPmExpressMsix) {
  EXPECT_THAT(capability_ids(), ElementsAre(0x01, 0x10, 0x11));
}

TEST_F(ConfigSpaceTest, ExtendedConfigSpaceIsEmpty) { EXPECT_EQ(read(0x100, 4), 0u); }

TEST_F(ConfigSpaceTest, UnsupportedPowerStateIsDiscarded) {
  const auto pmcsr = ConfigSpace::kPowerManagementAt + 4;
  write(pmcsr, 2, 3);
  EXPECT_EQ(read(pmcsr, 2) & 3, 3u);
  write(pmcsr, 2, 1);
  EXPECT_EQ(read(pmcsr, 2) & 3, 3u);
  write(pmcsr, 2, 0);
  EXPECT_EQ(read(pmcsr, 2), 0x0008u);  // No_Soft_Reset
}

// PCIe 5.0 7.5.3.16: "hardwired to 0b if it is not capable of initiating AtomicOp Requests".
TEST_F(ConfigSpaceTest, AtomicOpRequesterEnableIsOptional) {
  constexpr auto kAt = ConfigSpace::kExpressAt + 0x28;
  write(kAt, 2, 1u << 6);
  EXPECT_EQ(read(kAt, 2), 0u);
  config_.add_atomic_requester();
  EXPECT_FALSE(config_.atomic_requests_enabled());
  write(kAt, 2, 1u << 6);
  EXPECT_EQ(read(kAt, 2), 1u << 6);
  EXPECT_TRUE(config_.atomic_requests_enabled());
  config_.reset();
  EXPECT_FALSE(config_.atomic_requests_enabled());
}

TEST_F(ConfigSpaceTest, ExpressIsAnEndpointThatCanBeReset) {
  const auto at = ConfigSpace::kExpressAt;
  EXPECT_EQ(read(at + 2, 2), 0x0002u);
  EXPECT_TRUE(read(at + 4, 4) & 1u << 28);
  EXPECT_EQ(read(at + 0x0c, 4) & 0x3ff, 0x103u);  // 8 GT/s, x16
  EXPECT_EQ(read(at + 0x12, 2) & 0x3ff, 0x103u);
}

TEST_F(ConfigSpaceTest, InitiateFunctionLevelResetAlwaysReadsAsZero) {
  const auto control = ConfigSpace::kExpressAt + 8;
  EXPECT_FALSE(write(control, 2, 0x7fff).function_level_reset);
  EXPECT_TRUE(write(control, 2, 0xffff).function_level_reset);
  EXPECT_EQ(read(control, 2), 0x7fffu);
  EXPECT_FALSE(write(control, 1, 0xff).function_level_reset);
  EXPECT_TRUE(write(control + 1, 1, 0x80).function_level_reset);
}

TEST_F(ConfigSpaceTest, MsixCapabilityGivesTableAndPba) {
  const auto at = ConfigSpace::kMsixAt;
  EXPECT_EQ(read(at + 2, 2), 63u);
  EXPECT_EQ(read(at + 4, 4), 0x2000u);
  EXPECT_EQ(read(at + 8, 4), 0x3000u);
  EXPECT_TRUE(write(at + 2, 2, 0xffff).msix_control);
  EXPECT_TRUE(config_.msix_enabled());
  EXPECT_TRUE(config_.msix_function_masked());
  EXPECT_EQ(read(at + 2, 2), 0xc03fu);
  EXPECT_FALSE(write(at + 4, 4, 0xffffffff).msix_control);
  EXPECT_EQ(read(at + 4, 4), 0x2000u);
}

TEST_F(ConfigSpaceTest, AccessesBeyondTheEndReadZeroAndAreDropped) {
  std::array<std::byte, 8> out;
  out.fill(std::byte{0xff});
  config_.read(4092, out);
  EXPECT_THAT(out, ::testing::Each(std::byte{0}));
  config_.read(0xffffffff, out);
  EXPECT_THAT(out, ::testing::Each(std::byte{0}));
  config_.write(4092, out);
  config_.write(0xffffffff, out);
}

TEST_F(ConfigSpaceTest, ResetRestoresThePowerOnValues) {
  std::array<std::byte, ConfigSpace::kSize> before, after, ones;
  ones.fill(std::byte{0xff});
  config_.read(0, before);
  config_.write(0, ones);
  config_.reset();
  config_.read(0, after);
  EXPECT_EQ(before, after);
}

std::vector<std::byte> read_vpd(ConfigSpace& config, std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::uint16_t at = 0; at < size; at = static_cast<std::uint16_t>(at + 4)) {
    std::array<std::byte, 2> address;
    util::store_le16(address.data(), at);
    config.write(ConfigSpace::kVpdAt + 2, address);
    config.read(ConfigSpace::kVpdAt + 2, address);
    EXPECT_EQ(util::load_le16(address.data()), at | 0x8000) << "F tells that the data is there";
    config.read(ConfigSpace::kVpdAt + 4, std::span(out).subspan(at, 4));
  }
  return out;
}

TEST_F(ConfigSpaceTest, VpdIsReadDwordByDwordAndSumsToZero) {
  config_.add_vital_product_data(
      {.product_name = "ConnectX-4", .read_only = {{"PN", "MCX455A"}, {"SN", "1"}}});
  EXPECT_THAT(capability_ids(), ElementsAre(0x01, 0x03, 0x10, 0x11));
  const auto vpd = read_vpd(config_, 64);
  EXPECT_EQ(vpd[0], std::byte{0x82});
  EXPECT_EQ(vpd[1], std::byte{10});
  EXPECT_EQ(vpd[13], std::byte{0x90});
  const std::size_t read_only = static_cast<std::size_t>(vpd[14]);
  EXPECT_EQ(vpd[16 + read_only], std::byte{0x78});
  std::uint8_t sum = 0;
  for (std::size_t i = 0; i < 16 + read_only; ++i)
    sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(vpd[i]));
  EXPECT_EQ(sum, 0u);
}

TEST_F(ConfigSpaceTest, VpdWriteCompletesWithoutEffect) {
  config_.add_vital_product_data({.product_name = "ConnectX-4", .read_only = {}});
  write(ConfigSpace::kVpdAt + 4, 4, 0x12345678);
  write(ConfigSpace::kVpdAt + 2, 2, 0x8000);
  EXPECT_EQ(read(ConfigSpace::kVpdAt + 2, 2), 0u) << "F tells that the write is done";
  EXPECT_EQ(read_vpd(config_, 4)[0], std::byte{0x82});
}

TEST_F(ConfigSpaceTest, AVpdReadBeginsWithTheByteThatHoldsTheFlag) {
  config_.add_vital_product_data({.product_name = "ConnectX-4", .read_only = {}});
  write(ConfigSpace::kVpdAt + 2, 1, 4);
  EXPECT_EQ(read(ConfigSpace::kVpdAt + 2, 2), 4u) << "half an address asks for nothing";
  write(ConfigSpace::kVpdAt + 3, 1, 0);
  EXPECT_EQ(read(ConfigSpace::kVpdAt + 2, 2), 0x8004u);
  EXPECT_EQ(read(ConfigSpace::kVpdAt + 4, 1), std::uint32_t{'o'}) << "the second of the name";
}

TEST_F(ConfigSpaceTest, VpdBeyondItsEndReadsZero) {
  config_.add_vital_product_data({.product_name = "x", .read_only = {}});
  write(ConfigSpace::kVpdAt + 2, 2, 0x7ffc);
  EXPECT_EQ(read(ConfigSpace::kVpdAt + 4, 4), 0u);
}

}  // namespace
}  // namespace softhca::pcie

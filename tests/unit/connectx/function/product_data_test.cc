// Vital Product Data (PRM Table 6), read as a host reads it: through the capability's two
// registers.
#include "connectx/function/product_data.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "connectx/fake_host.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

constexpr std::uint8_t kVpdId = 0x03;

class ProductDataTest : public testing::Test {
 protected:
  std::uint32_t read(std::uint32_t offset, std::size_t size) {
    std::array<std::byte, 4> bytes{};
    host.device.read_config(offset, std::span(bytes).first(size));
    return util::load_le32(bytes.data());
  }
  /// Offset of a capability; 0 if the list has none.
  std::uint32_t find_capability(std::uint8_t id) {
    auto at = read(0x34, 1);
    while (at != 0 && read(at, 1) != id) at = read(at + 1, 1);
    return at;
  }
  std::string read_vpd(std::uint32_t capability, std::uint16_t size) {
    std::string out;
    for (std::uint16_t at = 0; at < size; at = static_cast<std::uint16_t>(at + 4)) {
      std::array<std::byte, 2> address;
      util::store_le16(address.data(), at);
      host.device.write_config(capability + 2, address);
      EXPECT_EQ(read(capability + 2, 2), at | 0x8000u);
      const auto dword = read(capability + 4, 4);
      for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<char>(dword >> (8 * i)));
    }
    return out;
  }

  FakeHost host;
};

TEST_F(ProductDataTest, NamesTheProductAndItsSerialNumber) {
  const auto capability = find_capability(kVpdId);
  ASSERT_NE(capability, 0u);
  const auto vpd = read_vpd(capability, 256);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(vpd.at(at)); };
  ASSERT_EQ(byte(0), 0x82) << "identifier string";
  const std::size_t name = byte(1);
  EXPECT_EQ(vpd.substr(3, name), "softhca ConnectX-4");
  ASSERT_EQ(byte(3 + name), 0x90) << "VPD-R";
  const std::size_t end = 6 + name + byte(4 + name);
  std::map<std::string, std::string> fields;
  for (auto at = 6 + name; at < end; at += 3 + byte(at + 2)) {
    fields[vpd.substr(at, 2)] = vpd.substr(at + 3, byte(at + 2));
  }
  EXPECT_EQ(byte(end), 0x78) << "end tag";
  EXPECT_FALSE(fields["PN"].empty());
  // Drivers use V3 as the card's name, and SN if there is no V3.
  EXPECT_EQ(fields["V3"].size(), 32u);
  EXPECT_FALSE(fields["SN"].empty());
  EXPECT_EQ(fields["RV"].size(), 1u);
}

TEST_F(ProductDataTest, NoTwoCardsHaveTheSameSerialNumber) {
  const auto one = product_data({}, 0x0200000000000001);
  const auto other = product_data({}, 0x0200000000000002);
  unsigned differ = 0;
  for (std::size_t i = 0; i < one.read_only.size(); ++i) {
    if (one.read_only[i].value == other.read_only[i].value) continue;
    ++differ;
    EXPECT_TRUE(one.read_only[i].keyword == "SN" || one.read_only[i].keyword == "V3");
  }
  EXPECT_EQ(differ, 2u);
}

}  // namespace
}  // namespace softhca::connectx

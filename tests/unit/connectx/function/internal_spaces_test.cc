// Internal commands through configuration space, as iPXE's driver sends them before INIT_HCA.
#include "connectx/function/internal_spaces.h"

#include <gtest/gtest.h>

#include <array>

#include "connectx/fake_host.h"
#include "connectx/function/vendor_capability.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

/// The accesses of iPXE's mlx_pci_gw.c and mlx_icmd.c, with their numbers.
class InternalCommands : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kIcmd = 3;
  static constexpr std::uint32_t kSemaphore = 0xA;
  static constexpr std::uint32_t kPtys = 0x5004;
  static constexpr std::uint32_t kRead = 1;
  static constexpr std::uint32_t kWrite = 2;

  InternalCommands() { host_.enable(); }

  std::uint32_t config(std::uint32_t offset) {
    std::array<std::byte, 4> bytes;
    host_.device.read_config(pcie::ConfigSpace::kVendorSpecificAt + offset, bytes);
    return util::load_le32(bytes.data());
  }
  void config(std::uint32_t offset, std::uint32_t value) {
    std::array<std::byte, 4> bytes;
    util::store_le32(bytes.data(), value);
    host_.device.write_config(pcie::ConfigSpace::kVendorSpecificAt + offset, bytes);
  }
  std::uint32_t read(std::uint32_t space, std::uint32_t address) {
    config(VendorCapability::kControl, space);
    config(VendorCapability::kAddress, address);
    EXPECT_EQ(config(VendorCapability::kAddress), 0x80000000 | address);
    return config(VendorCapability::kData);
  }
  void write(std::uint32_t space, std::uint32_t address, std::uint32_t value) {
    config(VendorCapability::kControl, space);
    config(VendorCapability::kData, value);
    config(VendorCapability::kAddress, 0x80000000 | address);
    EXPECT_EQ(config(VendorCapability::kAddress), address);
  }
  /// Executes a command. Returns its status.
  std::uint32_t execute(std::uint32_t opcode) {
    write(kIcmd, 0, (read(kIcmd, 0) & 0xFFFF) | opcode << 16);
    write(kIcmd, 0, read(kIcmd, 0) | 1);
    const auto control = read(kIcmd, 0);
    EXPECT_EQ(control & 1, 0u) << "busy";
    EXPECT_EQ(control >> 16, opcode);
    return control >> 8 & 0xFF;
  }
  /// Accesses a register of 16 dwords. Returns the status of the access.
  std::uint32_t access(std::uint32_t id, std::uint32_t method,
                       std::array<std::uint32_t, 16>& data) {
    constexpr std::uint32_t kMailbox = 0x100000;
    write(kIcmd, kMailbox, 1u << 27 | 4u << 16);
    write(kIcmd, kMailbox + 4, id << 16 | method << 8 | 1);
    write(kIcmd, kMailbox + 16, 3u << 27 | 17u << 16);
    for (std::uint32_t i = 0; i != data.size(); ++i) write(kIcmd, kMailbox + 20 + 4 * i, data[i]);
    EXPECT_EQ(execute(0x9001), 0u);
    for (std::uint32_t i = 0; i != data.size(); ++i) data[i] = read(kIcmd, kMailbox + 20 + 4 * i);
    return read(kIcmd, kMailbox) >> 8 & 0x7F;
  }

  FakeHost host_;
};

TEST_F(InternalCommands, IPxeSetsTheSpeedOfThePortBeforeInitHca) {
  EXPECT_GE(read(kIcmd, 0x1000), 256u) << "what iPXE's largest message has";
  EXPECT_EQ(read(kSemaphore, 0), 0u);
  write(kSemaphore, 0, 0x12345);
  EXPECT_EQ(read(kSemaphore, 0), 0x12345u);
  write(kSemaphore, 0, 0x54321);
  EXPECT_EQ(read(kSemaphore, 0), 0x12345u) << "taken";
  std::array<std::uint32_t, 16> ptys{};
  ptys[0] = 1u << 16 | 1;  // port 1, InfiniBand
  ASSERT_EQ(access(kPtys, kRead, ptys), 0u);
  EXPECT_EQ(ptys[0], 1u << 16 | 4) << "an Ethernet port";
  EXPECT_EQ(ptys[3], 1u << 20) << "eth_proto_capability: 100GBASE-CR4";
  EXPECT_EQ(ptys[4], 0u) << "no InfiniBand";
  EXPECT_EQ(access(kPtys, kWrite, ptys), 0u);
  ptys[6] = 1;
  EXPECT_EQ(access(kPtys, kWrite, ptys), 7u) << "a speed that the port has not";
  write(kSemaphore, 0, 0);
  EXPECT_EQ(read(kSemaphore, 0), 0u);
}

TEST_F(InternalCommands, MissingRegistersAndMethodsHaveAStatusEach) {
  std::array<std::uint32_t, 16> data{};
  EXPECT_EQ(access(0x9024, kRead, data), 4u) << "NVDA: no such register";
  EXPECT_EQ(access(kPtys, 3, data), 6u) << "no such method";
  write(kIcmd, 0x100004, kPtys << 16 | kRead << 8 | 9);
  EXPECT_EQ(execute(0x9001), 0u);
  EXPECT_EQ(read(kIcmd, 0x100000) >> 8 & 0x7F, 5u) << "no such class";
  write(kIcmd, 0x100000, 9u << 27);
  EXPECT_EQ(execute(0x9001), 0u);
  EXPECT_EQ(read(kIcmd, 0x100000) >> 8 & 0x7F, 3u) << "no such TLV";
  EXPECT_EQ(execute(0x8007), 1u) << "GET_FW_INFO";
  for (const std::uint32_t length : {0u, 1021u, 2047u}) {
    write(kIcmd, 0x100010, 3u << 27 | length << 16);
    EXPECT_EQ(execute(0x9001), 4u) << length;
  }
}

TEST_F(InternalCommands, AResetEndsThem) {
  write(kSemaphore, 0, 5);
  write(kIcmd, 0x100000, 6);
  host_.device.reset();
  EXPECT_EQ(read(kSemaphore, 0), 0u);
  EXPECT_EQ(read(kIcmd, 0x100000), 0u);
}

}  // namespace
}  // namespace softhca::connectx

// SDXI 8: what a host sees in configuration space.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

class PcieTest : public ::testing::Test {
 protected:
  std::uint32_t config(std::uint32_t at) {
    std::uint32_t value = 0;
    machine_.device->read_config(at, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void set_config(std::uint32_t at, std::uint32_t value) {
    machine_.device->write_config(at, std::as_bytes(std::span(&value, 1)));
  }
  /// Size by the probe of PCIe 5.0 7.5.1.2.1.
  std::uint64_t probe(std::uint32_t at) {
    set_config(at, 0xffffffff);
    set_config(at + 4, 0xffffffff);
    return ~((std::uint64_t{config(at + 4)} << 32 | config(at)) & ~std::uint64_t{0xf}) + 1;
  }
  bool has_capability(std::uint8_t id) {
    for (auto at = config(0x34) & 0xff; at != 0; at = config(at) >> 8 & 0xff) {
      if ((config(at) & 0xff) == id) return true;
    }
    return false;
  }
  FunctionGroup group_;
  Machine machine_{group_};
};

// D-001
TEST_F(PcieTest, ClassCodeIsSdxi) { EXPECT_EQ(config(0x08) >> 8, 0x120100u); }

// D-002
TEST_F(PcieTest, Bar0Is64BitPrefetchableMemoryOf512KiB) {
  EXPECT_EQ(config(0x10) & 0xf, 0xcu);
  EXPECT_EQ(probe(0x10), 512u << 10);
}

// D-003
TEST_F(PcieTest, Bar2HoldsADoorbellSectionForEveryContext) {
  EXPECT_EQ(config(0x18) & 0xf, 0xcu);
  EXPECT_GE(probe(0x18), (machine_.device->options().max_cxt + 1u) * 4096u);
  FunctionGroup group;
  Machine wide(group, {.max_cxt = 300, .db_stride = 1});
  EXPECT_EQ(wide.device->bar(2).size, 512u * 8192u);
}

// D-004
TEST_F(PcieTest, Bars4And5AreReserved) {
  set_config(0x20, 0xffffffff);
  set_config(0x24, 0xffffffff);
  EXPECT_EQ(config(0x20), 0u);
  EXPECT_EQ(config(0x24), 0u);
}

// D-005
TEST_F(PcieTest, HasPowerManagement) { EXPECT_TRUE(has_capability(0x01)); }

// D-006 D-007
TEST_F(PcieTest, MsixTableLiesInItsReservedRegionAndWorks) {
  EXPECT_TRUE(has_capability(0x11));
  const auto table = config(pcie::ConfigSpace::kMsixAt + 4);
  EXPECT_EQ(table & 7, 0u);
  EXPECT_EQ(table & ~7u, 0x40000u);
  machine_.activate();
  EXPECT_FALSE(machine_.admin(admin_interrupt(3)).er);
  EXPECT_EQ(machine_.interrupts(3), 1u);
}

// D-006
TEST_F(PcieTest, MsiCarriesTheInterruptsOfADriverThatEnablesItInsteadOfMsix) {
  EXPECT_TRUE(has_capability(0x05));
  const std::uint16_t off = 0, four_vectors = 1 | 2 << 4;
  auto& device = *machine_.device;
  device.interrupts().msi()->set_sink(&machine_.sink(), pcie::Masking::kRegisters);
  device.write_config(pcie::ConfigSpace::kMsixAt + 2, std::as_bytes(std::span(&off, 1)));
  device.write_config(pcie::ConfigSpace::kMsiAt + 2, std::as_bytes(std::span(&four_vectors, 1)));
  machine_.activate();
  EXPECT_FALSE(machine_.admin(admin_interrupt(3)).er);
  EXPECT_EQ(machine_.interrupts(3), 1u);
  EXPECT_TRUE(machine_.admin(admin_interrupt(4)).er) << "beyond the allocated vectors";
}

// 8.1.3: "MSI and/or MSI-X"; with neither of them enabled there is nothing to signal.
TEST_F(PcieTest, WithoutMsiAndMsixThereIsNoInterrupt) {
  const std::uint16_t off = 0;
  auto& device = *machine_.device;
  device.interrupts().msi()->set_sink(&machine_.sink(), pcie::Masking::kRegisters);
  device.write_config(pcie::ConfigSpace::kMsixAt + 2, std::as_bytes(std::span(&off, 1)));
  machine_.activate();
  EXPECT_FALSE(machine_.admin(admin_interrupt(3)).er);
  EXPECT_EQ(machine_.interrupts(3), 0u);
}

// D-009 D-010
TEST_F(PcieTest, FunctionLevelResetRestoresResetValues) {
  machine_.activate();
  const auto cap = config(pcie::ConfigSpace::kExpressAt + 8);
  set_config(pcie::ConfigSpace::kExpressAt + 8, cap | 1u << 15);
  EXPECT_EQ(machine_.gsv(), spec::fn_gsv::GSV_STOP);
  EXPECT_EQ(machine_.read(spec::mmio_register::MMIO_CTL0), 0u);
  EXPECT_EQ(machine_.read(spec::mmio_register::MMIO_CXT_L2), 0u);
  EXPECT_EQ(machine_.read(spec::mmio_register::MMIO_ERR_CFG), 0u);
  EXPECT_EQ(
      machine_.field<spec::mmio_ctl2>(spec::mmio_register::MMIO_CTL2, spec::mmio_ctl2::max_cxt),
      machine_.device->options().max_cxt);
}

// D-010 D-011
TEST_F(PcieTest, NoMemoryIsWrittenAfterAResetDuringACopy) {
  machine_.activate();
  auto& c = machine_.start_context(1);
  const auto size = 8u << 20;
  const auto from = machine_.allocate(size), to = machine_.allocate(size);
  machine_.fill(from, size, 1);
  machine_.submit(c, copy(from, to, size));
  machine_.step();
  EXPECT_TRUE(machine_.equal(from, to, 4096));
  EXPECT_FALSE(machine_.equal(from, to, size));
  machine_.device->reset();
  const std::vector<std::byte> before(machine_.host(to), machine_.host(to) + size);
  machine_.power_on();
  machine_.run();
  EXPECT_EQ(0, std::memcmp(before.data(), machine_.host(to), size));
  EXPECT_EQ(machine_.gsv(), spec::fn_gsv::GSV_STOP);
}

// D-012 D-030
TEST_F(PcieTest, Cap0TellsPfFromVf) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1});
  Machine vf(group, {}, &pf);
  using reg = spec::mmio_register;
  EXPECT_EQ(pf.field<spec::mmio_cap0>(reg::MMIO_CAP0, spec::mmio_cap0::vf), 0u);
  EXPECT_EQ(vf.field<spec::mmio_cap0>(reg::MMIO_CAP0, spec::mmio_cap0::vf), 1u);
}

// D-013
TEST_F(PcieTest, ThereIsNoLegacyInterruptPin) { EXPECT_EQ(config(0x3c) >> 8 & 0xff, 0u); }

// D-041: without bus mastering nothing is reached.
TEST_F(PcieTest, WithoutBusMasteringNoMemoryIsAccessed) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const std::uint16_t command = 0x0002;
  m.device->write_config(4, std::as_bytes(std::span(&command, 1)));
  m.trace.accesses.clear();
  m.submit(c, nop());
  m.run();
  EXPECT_TRUE(m.trace.accesses.empty());
}

}  // namespace
}  // namespace softhca::sdxi::test

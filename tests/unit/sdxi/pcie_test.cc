// SDXI 8: configuration space as a host sees it.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;

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
  /// BAR size by the probe of PCIe 5.0 7.5.1.2.1.
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

// Figure 8-1: only Memory Space, Bus Master, Parity Error Response and SERR# can be set.
TEST_F(PcieTest, OnlyFourBitsOfTheCommandRegisterCanBeSet) {
  set_config(0x04, 0xffff);
  EXPECT_EQ(config(0x04) & 0xffff, 0x0146u);
  set_config(0x04, 0);
  EXPECT_EQ(config(0x04) & 0xffff, 0u);
}

// D-002
TEST_F(PcieTest, Bar0Is64BitPrefetchableMemoryOf512KiB) {
  EXPECT_EQ(config(0x10) & 0xf, 0xcu);
  EXPECT_EQ(probe(0x10), 512u << 10);
}

// D-003
TEST_F(PcieTest, Bar2HoldsADoorbellSectionForEveryContext) {
  EXPECT_EQ(config(0x18) & 0xf, 0xcu);
  EXPECT_GE(probe(0x18), (machine_.device->options().capabilities.max_cxt + 1u) * 4096u);
  FunctionGroup group;
  Machine wide(group, {.capabilities = {.max_cxt = 300, .db_stride = 1}});
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

// 8.1.3: "MSI and/or MSI-X". If neither is enabled, the function cannot signal.
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
      machine_.device->options().capabilities.max_cxt);
}

// D-009: fundamental and hot reset; the host calls pcie::Function::reset().
TEST_F(PcieTest, AResetIsCharged) {
  const auto before = machine_.device->work_done();
  machine_.device->reset();
  EXPECT_GE(machine_.device->work_done(), before + 10'000);
}

TEST_F(PcieTest, AFundamentalResetRestoresConfigurationSpaceAndRegisters) {
  FunctionGroup group;
  Machine fresh(group), used(group);
  fresh.device->reset();
  used.activate();
  used.make_rkeys();
  used.set_field<spec::mmio_ctl2>(spec::mmio_register::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 3);
  auto& c = used.start_context(1);
  used.submit(c, copy(0x1000, 0x2000, 8));  // logs a record
  used.run();
  const std::uint64_t bar = 0xf00000000;
  used.device->write_config(0x10, std::as_bytes(std::span(&bar, 1)));
  used.device->reset();
  EXPECT_EQ(used.gsv(), spec::fn_gsv::GSV_STOP);
  for (std::uint64_t at = 0; at < 0x30000; at += 8) {
    if (at == static_cast<std::uint64_t>(spec::mmio_register::MMIO_CAP0)) continue;  // sfunc
    ASSERT_EQ(used.read(at), fresh.read(at)) << std::hex << at;
  }
  std::array<std::byte, 4096> before{}, after{};
  fresh.device->read_config(0, before);
  used.device->read_config(0, after);
  EXPECT_EQ(before, after);
  used.power_on();
  used.activate();
  EXPECT_TRUE(used.execute(used.start_context(1), nop()).done);
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

// D-002 D-010: a VF is a function like its PF, and is reset on its own.
TEST_F(PcieTest, AVfIsResetUnderTrafficAndItsPfGoesOn) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1});
  Machine vf(group, {}, &pf);
  EXPECT_EQ(vf.device->bar(0).size, 512u << 10);
  EXPECT_TRUE(vf.device->bar(0).is_64bit && vf.device->bar(0).prefetchable);
  pf.activate(), vf.activate();
  constexpr auto size = 8u << 20;
  const auto begin = [](Machine& m) {
    const auto from = m.allocate(size), to = m.allocate(size);
    auto d = copy(from, to, size);
    const auto block = m.attach_completion(d);
    m.submit(m.start_context(1), d);
    m.step();
    return block;
  };
  const auto of_pf = begin(pf), of_vf = begin(vf);
  const auto at = pcie::ConfigSpace::kExpressAt + 8;
  const std::uint16_t initiate_flr = 1u << 15;
  vf.device->write_config(at, std::as_bytes(std::span(&initiate_flr, 1)));
  vf.power_on();
  const std::vector<std::byte> before(vf.host(Machine::kBase),
                                      vf.host(Machine::kBase) + Machine::kMemory);
  pf.run(), vf.run();
  EXPECT_EQ(vf.gsv(), spec::fn_gsv::GSV_STOP);
  EXPECT_EQ(vf.signal(of_vf), 1u);
  EXPECT_EQ(0, std::memcmp(before.data(), vf.host(Machine::kBase), before.size()));
  EXPECT_EQ(pf.signal(of_pf), 0u);
  EXPECT_EQ(pf.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

// D-012 D-030
TEST_F(PcieTest, Cap0DistinguishesPfFromVf) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1});
  Machine vf(group, {}, &pf);
  EXPECT_EQ(pf.field<spec::mmio_cap0>(reg::MMIO_CAP0, spec::mmio_cap0::vf), 0u);
  EXPECT_EQ(vf.field<spec::mmio_cap0>(reg::MMIO_CAP0, spec::mmio_cap0::vf), 1u);
}

// D-013
TEST_F(PcieTest, ThereIsNoLegacyInterruptPin) { EXPECT_EQ(config(0x3c) >> 8 & 0xff, 0u); }

// D-041: without bus mastering the function makes no access.
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

// PCIe 5.0 7.5.1.1.3: an interrupt message is a memory write, and waits like the others.
TEST_F(PcieTest, WithoutBusMasteringMessagesWait) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1});
  Machine vf(group, {}, &pf);
  vf.set_field<spec::mmio_mb_ctl>(reg::MMIO_MB_CTL, spec::mmio_mb_ctl::rcv, 1);
  const auto set_command = [&vf](std::uint16_t command) {
    vf.device->write_config(4, std::as_bytes(std::span(&command, 1)));
  };
  set_command(0x0002);
  util::Struct<spec::mmio_mbs_ctl> send;
  send.set(spec::mmio_mbs_ctl::msg, 1);
  pf.write(reg::MMIO_MBS_CTL, util::load_le64(send.bytes().data()));
  EXPECT_EQ(vf.interrupts(0), 0u);
  set_command(0x0006);
  EXPECT_EQ(vf.interrupts(0), 1u);
}

// 8.1.3, PCIe 5.0 5.3.1.4.1: in D3hot the function makes no requests, and the host cannot reach its
// registers. No_Soft_Reset is set: state is kept and work continues in D0.
TEST_F(PcieTest, InD3hotTheFunctionRestsAndGoesOnInD0) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto size = 1u << 20;
  const auto from = m.allocate(size), to = m.allocate(size);
  m.fill(from, size, 1);
  auto d = copy(from, to, size);
  const auto block = m.attach_completion(d);
  m.submit(c, d);
  m.step();
  const auto set_power = [&m](std::uint16_t state) {
    m.device->write_config(pcie::ConfigSpace::kPowerManagementAt + 4,
                           std::as_bytes(std::span(&state, 1)));
  };
  set_power(3);
  m.trace.accesses.clear();
  m.run();
  EXPECT_EQ(m.step(), util::kNever);
  EXPECT_TRUE(m.trace.accesses.empty());
  EXPECT_EQ(m.read(spec::mmio_register::MMIO_STS0), ~std::uint64_t{0});
  m.write(spec::mmio_register::MMIO_CTL0, 0);  // would be an error in GSV_ACTIVE
  m.doorbell(1, 1);
  set_power(0);
  EXPECT_EQ(m.gsv(), spec::fn_gsv::GSV_ACTIVE);
  m.run();
  EXPECT_EQ(m.signal(block), 0u);
  EXPECT_TRUE(m.equal(from, to, size));
  EXPECT_EQ(m.records(), 0u);
}

/// DevCtl2 of PCIe 5.0 7.5.3.16.
constexpr auto kDeviceControl2 = pcie::ConfigSpace::kExpressAt + 0x28;
constexpr std::uint16_t kAtomicOpRequesterEnable = 1u << 6;

// D-014, 8.4
TEST_F(PcieTest, WithoutAtomicOpRequesterEnableNoAtomicIsRequested) {
  const auto set_enable = [this](std::uint16_t value) {
    machine_.device->write_config(kDeviceControl2, std::as_bytes(std::span(&value, 1)));
  };
  machine_.activate();
  auto& c = machine_.start_context(1);
  const auto at = machine_.allocate(8, 8);
  machine_.store64(at, 40);
  set_enable(kAtomicOpRequesterEnable);
  EXPECT_EQ(config(kDeviceControl2) & 0xffff, kAtomicOpRequesterEnable);
  const auto add = atomic(spec::atomic_subtype::DSC_ATM_UADD, at, 8, 1);
  EXPECT_FALSE(machine_.execute(c, add).er);
  EXPECT_EQ(machine_.load64(at), 41u);

  set_enable(0);
  // Completion in atomic mode then uses a read and a write, which the Linux driver relies on.
  auto shared = nop();
  header(shared).set(spec::dsc_header::csr, 0);
  const auto block = machine_.attach_completion(shared, 5);
  machine_.submit(c, shared);
  machine_.run();
  EXPECT_EQ(machine_.signal(block), 4u);
  EXPECT_EQ(machine_.records(), 0u);

  EXPECT_TRUE(machine_.execute(c, add).er);
  EXPECT_EQ(machine_.load64(at), 41u);
  const auto record = machine_.record(0);
  EXPECT_EQ(record.get(spec::errlog_hd_ent::step), 10u);
  EXPECT_EQ(record.get(spec::errlog_hd_ent::sub_step), 2u);
  EXPECT_EQ(record.get(spec::errlog_hd_ent::err_class), 0x3100u);

  machine_.device->reset();
  EXPECT_EQ(config(kDeviceControl2) & kAtomicOpRequesterEnable, 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test

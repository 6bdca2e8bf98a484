// The virtual port and the port's registers (PRM 7.3, 11, 12.4, 12.16, 12.17).

#include "connectx/port/vport.h"

#include <gtest/gtest.h>

#include <string>

#include "connectx/fake_host.h"
#include "connectx/port/port_registers.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/registers.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;
using VportContext = s::nic_vport_context;
using Select = s::modify_nic_vport_field_select;

class VportTest : public testing::Test {
 protected:
  using Query = s::query_nic_vport_context_out;
  using Modify = s::modify_nic_vport_context_in;

  VportTest() { host.initialize(); }

  Reply query(s::allowed_list_type type = s::allowed_list_type::CURRENT_UC_MAC_ADDRESS,
              std::size_t entries = 0) {
    Input<s::query_nic_vport_context_in> in(Opcode::QUERY_NIC_VPORT_CONTEXT);
    in->set(s::query_nic_vport_context_in::allowed_list_type, static_cast<std::uint8_t>(type));
    return host.execute<Query>(in, 8 * entries);
  }
  bool state_up() {
    Input<s::query_vport_state_in> in(Opcode::QUERY_VPORT_STATE);
    const auto reply = host.execute<s::query_vport_state_out>(in);
    EXPECT_TRUE(reply.ok());
    return reply.as<s::query_vport_state_out>().get(s::query_vport_state_out::state) == 1;
  }
  FakeHost host;
};

TEST_F(VportTest, ContextHasTheAddressAndGuidsOfTheCard) {
  const auto reply = query();
  ASSERT_TRUE(reply.ok());
  const auto context = reply.as<Query>().get(Query::nic_vport_context);
  const auto mac = context.get(VportContext::permanent_address).get(s::mac_address::mac_addr);
  EXPECT_EQ(rdma::Mac::from(mac), rdma::Mac::from_u64(0x020000000001));
  EXPECT_NE(context.get(VportContext::node_guid), 0u);
  EXPECT_EQ(context.get(VportContext::roce_en), 0u);
  EXPECT_EQ(context.get(VportContext::sd_group), 0u);
  EXPECT_EQ(context.get(VportContext::mtu), 0u) << "equal to the external physical port";
}

TEST_F(VportTest, RoceIsSwitchedOnAndOff) {
  Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT);
  (*in).sub(Modify::field_select).set(Select::roce_en, 1);
  (*in).sub(Modify::nic_vport_context).set(VportContext::roce_en, 1);
  EXPECT_TRUE(host.execute<s::modify_nic_vport_context_out>(in).ok());
  EXPECT_TRUE(host.device.driver().vport().roce_enabled());
  (*in).sub(Modify::nic_vport_context).set(VportContext::roce_en, 0);
  EXPECT_TRUE(host.execute<s::modify_nic_vport_context_out>(in).ok());
  EXPECT_FALSE(host.device.driver().vport().roce_enabled());
}

TEST_F(VportTest, OnlySelectedFieldsChange) {
  Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT);
  (*in).sub(Modify::field_select).set(Select::promisc, 1);
  const auto context = (*in).sub(Modify::nic_vport_context);
  context.set(VportContext::promisc_all, 1);
  context.set(VportContext::roce_en, 1);
  context.set(VportContext::mtu, 9000);
  EXPECT_TRUE(host.execute<s::modify_nic_vport_context_out>(in).ok());
  EXPECT_TRUE(host.device.driver().vport().promisc_all());
  EXPECT_FALSE(host.device.driver().vport().roce_enabled());
  EXPECT_EQ(host.device.driver().vport().mtu(), 0);
}

TEST_F(VportTest, AddressListsAreKept) {
  Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT, 0, 16);
  (*in).sub(Modify::field_select).set(Select::addresses_list, 1);
  const auto context = (*in).sub(Modify::nic_vport_context);
  context.set(VportContext::allowed_list_type, 1);
  context.set(VportContext::allowed_list_size, 2);
  in.tail()[7] = std::byte{0x11};
  in.tail()[15] = std::byte{0x22};
  EXPECT_TRUE(host.execute<s::modify_nic_vport_context_out>(in).ok());
  const auto list = host.device.driver().vport().mc_list();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1], rdma::Mac::from_u64(0x22));
  const auto reply = query(s::allowed_list_type::CURRENT_MC_MAC_ADDRESS, 4);
  EXPECT_EQ(reply.as<Query>().get(Query::nic_vport_context).get(VportContext::allowed_list_size),
            2u);
  EXPECT_EQ(reply.out[Query::kSize + 15], std::byte{0x22});
}

TEST_F(VportTest, VlanListsAreKept) {
  Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT, 0, 8);
  (*in).sub(Modify::field_select).set(Select::addresses_list, 1);
  const auto context = (*in).sub(Modify::nic_vport_context);
  context.set(VportContext::allowed_list_type, 2);
  context.set(VportContext::allowed_list_size, 1);
  util::MutableView<s::vlan_entry>(in.tail()).set(s::vlan_entry::vlan, 100);
  EXPECT_TRUE(host.execute<s::modify_nic_vport_context_out>(in).ok());
  ASSERT_EQ(host.device.driver().vport().vlan_list().size(), 1u);
  EXPECT_EQ(host.device.driver().vport().vlan_list()[0], 100);
}

TEST_F(VportTest, UnknownBitsOfFieldSelectAreRefusedAndChangeNothing) {
  for (const unsigned bit : {0u, 12u, 14u, 31u}) {
    Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT);
    const auto select = (*in).sub(Modify::field_select);
    util::store_be32(select.bytes().data(), 1u << bit);
    select.set(Select::roce_en, 1);
    (*in).sub(Modify::nic_vport_context).set(VportContext::roce_en, 1);
    EXPECT_EQ(host.execute<s::modify_nic_vport_context_out>(in).status(), Code::BAD_PARAM) << bit;
    EXPECT_FALSE(host.device.driver().vport().roce_enabled());
  }
}

TEST_F(VportTest, BadModificationsAreRefusedAndChangeNothing) {
  Input<Modify> in(Opcode::MODIFY_NIC_VPORT_CONTEXT);
  const auto select = (*in).sub(Modify::field_select);
  const auto context = (*in).sub(Modify::nic_vport_context);
  select.set(Select::addresses_list, 1);
  select.set(Select::roce_en, 1);
  context.set(VportContext::roce_en, 1);
  const auto status = [&] { return host.execute<s::modify_nic_vport_context_out>(in).status(); };
  context.set(VportContext::allowed_list_size, 129);
  EXPECT_EQ(status(), Code::EXCEED_LIM);
  context.set(VportContext::allowed_list_size, 2);
  EXPECT_EQ(status(), Code::BAD_INPUT_LEN);
  context.set(VportContext::allowed_list_type, 3);
  EXPECT_EQ(status(), Code::BAD_PARAM);
  select.set(Select::addresses_list, 0);
  select.set(Select::mtu, 1);
  context.set(VportContext::mtu, 0xFFFF);
  EXPECT_EQ(status(), Code::BAD_PARAM);
  in->set(Modify::vport_number, 1);
  EXPECT_EQ(status(), Code::BAD_PARAM);
  EXPECT_FALSE(host.device.driver().vport().roce_enabled());
}

TEST_F(VportTest, StateFollowsTheLink) {
  EXPECT_TRUE(state_up());
  host.port.up = false;
  EXPECT_FALSE(state_up());
}

TEST_F(VportTest, OnlyTheDefaultPartitionExists) {
  using In = s::query_hca_vport_pkey_in;
  Input<In> in(Opcode::QUERY_HCA_VPORT_PKEY);
  auto reply = host.execute<s::query_hca_vport_pkey_out>(in, 4);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(util::load_be32(reply.out.data() + 16), 0xFFFFu);
  in->set(In::pkey_index, 1);
  reply = host.execute<s::query_hca_vport_pkey_out>(in, 4);
  EXPECT_EQ(util::load_be32(reply.out.data() + 16), 0u);
  in->set(In::pkey_index, 128);
  EXPECT_EQ(host.execute<s::query_hca_vport_pkey_out>(in, 4).status(), Code::BAD_INDEX);
}

// Registers
// ----------------------------------------------------------------------------------------

class PortRegisterTest : public VportTest {
 protected:
  template <class Register>
  Reply access(s::register_id id, bool read, util::Struct<Register>& content) {
    Input<s::access_register_in> in(Opcode::ACCESS_REG, read ? 1 : 0, Register::kSize);
    in->set(s::access_register_in::register_id, static_cast<std::uint16_t>(id));
    std::ranges::copy(content.bytes(), in.tail().begin());
    const auto reply = host.execute<s::access_register_out>(in, Register::kSize);
    const auto body = std::span(reply.out).subspan(s::access_register_out::register_data_offset);
    if (reply.ok()) std::ranges::copy(body.first(Register::kSize), content.bytes().begin());
    return reply;
  }
  unsigned port_events(std::uint64_t eq, s::port_change_subtype subtype) {
    unsigned n = 0;
    for (unsigned i = 0; i < 16; ++i) {
      const util::View<s::eqe> eqe(std::span(host.at(eq + 64 * i), 64));
      if (eqe.get(s::eqe::owner) != 0) break;
      EXPECT_EQ(eqe.get(s::eqe::event_type), 0x09u);
      EXPECT_EQ(eqe.get(s::eqe::event_data)[8], std::byte{0x10}) << "port 1";
      if (eqe.get(s::eqe::event_sub_type) == static_cast<std::uint8_t>(subtype)) ++n;
    }
    return n;
  }
  Reply set_admin(s::paos_admin_status status) {
    using R = s::reg_paos;
    util::Struct<R> paos;
    paos.set(R::local_port, 1);
    paos.set(R::admin_status, static_cast<std::uint8_t>(status));
    paos.set(R::ase, 1);
    return access<R>(s::register_id::PAOS, false, paos);
  }
};

TEST_F(PortRegisterTest, SpeedHasExactlyOneBitWhenTheLinkIsUp) {
  using R = s::reg_ptys;
  util::Struct<R> ptys;
  ptys.set(R::local_port, 1);
  ASSERT_TRUE(access<R>(s::register_id::PTYS, true, ptys).ok());
  EXPECT_EQ(ptys.get(R::eth_proto_oper), 1u << 20);
  EXPECT_EQ(ptys.get(R::ext_eth_proto_capability), 0u);
  host.port.up = false;
  ASSERT_TRUE(access<R>(s::register_id::PTYS, true, ptys).ok());
  EXPECT_EQ(ptys.get(R::eth_proto_oper), 0u);
  EXPECT_EQ(ptys.get(R::eth_proto_capability), 1u << 20);
}

TEST_F(PortRegisterTest, AnUnsupportedSpeedIsRefused) {
  using R = s::reg_ptys;
  util::Struct<R> ptys;
  ptys.set(R::local_port, 1);
  ptys.set(R::eth_proto_admin, 1u << 4);
  EXPECT_EQ(access<R>(s::register_id::PTYS, false, ptys).status(), Code::BAD_PARAM);
}

TEST_F(PortRegisterTest, MtuIsSetWithinItsMaximum) {
  using R = s::reg_pmtu;
  util::Struct<R> pmtu;
  pmtu.set(R::local_port, 1);
  ASSERT_TRUE(access<R>(s::register_id::PMTU, true, pmtu).ok());
  EXPECT_EQ(pmtu.get(R::max_mtu), 9978u);
  pmtu.set(R::admin_mtu, 9022);
  ASSERT_TRUE(access<R>(s::register_id::PMTU, false, pmtu).ok());
  ASSERT_TRUE(access<R>(s::register_id::PMTU, true, pmtu).ok());
  EXPECT_EQ(pmtu.get(R::oper_mtu), 9022u);
  for (const auto mtu : {0u, 9979u}) {
    pmtu.set(R::admin_mtu, mtu);
    EXPECT_EQ(access<R>(s::register_id::PMTU, false, pmtu).status(), Code::BAD_PARAM) << mtu;
  }
}

TEST_F(PortRegisterTest, PauseSettingsAreKept) {
  using R = s::reg_pfcc;
  util::Struct<R> pfcc;
  pfcc.set(R::local_port, 1);
  pfcc.set(R::pptx, 1);
  pfcc.set(R::pprx, 1);
  ASSERT_TRUE(access<R>(s::register_id::PFCC, false, pfcc).ok());
  util::Struct<R> read;
  read.set(R::local_port, 1);
  ASSERT_TRUE(access<R>(s::register_id::PFCC, true, read).ok());
  EXPECT_EQ(read.get(R::pptx), 1u);
  EXPECT_EQ(read.get(R::pprx), 1u);
}

TEST_F(PortRegisterTest, AdminDownAndUpAreReportedByEvents) {
  using Subtype = s::port_change_subtype;
  (void)host.create_eq(4, 1ull << 0x09, 0);
  const auto eq = host.last_buffer;
  host.run();
  EXPECT_EQ(port_events(eq, Subtype::ACTIVE), 1u);
  EXPECT_TRUE(set_admin(s::paos_admin_status::DOWN).ok());
  EXPECT_EQ(port_events(eq, Subtype::DOWN), 1u);
  EXPECT_FALSE(state_up());
  EXPECT_TRUE(set_admin(s::paos_admin_status::UP).ok());
  EXPECT_EQ(port_events(eq, Subtype::ACTIVE), 2u);
  EXPECT_TRUE(state_up());
  EXPECT_TRUE(set_admin(s::paos_admin_status::UP).ok());
  EXPECT_EQ(port_events(eq, Subtype::ACTIVE), 3u) << "a driver waits for it at every open";
}

// PRM Table 110, ase: "admin state update enable (WO)".
TEST_F(PortRegisterTest, TheAdminStateChangesOnlyIfItsUpdateIsEnabled) {
  using R = s::reg_paos;
  util::Struct<R> paos;
  paos.set(R::local_port, 1);
  paos.set(R::admin_status, static_cast<std::uint8_t>(s::paos_admin_status::DOWN));
  ASSERT_TRUE(access<R>(s::register_id::PAOS, false, paos).ok());
  EXPECT_EQ(paos.get(R::admin_status), static_cast<std::uint32_t>(s::paos_admin_status::UP));
  EXPECT_TRUE(state_up());
  ASSERT_TRUE(set_admin(s::paos_admin_status::DOWN).ok());
  EXPECT_FALSE(state_up());
}

TEST_F(PortRegisterTest, ThePulledCableIsReportedByAnEvent) {
  using Subtype = s::port_change_subtype;
  (void)host.create_eq(4, 1ull << 0x09, 0);
  const auto eq = host.last_buffer;
  host.run();
  host.port.up = false;
  host.advance(std::chrono::seconds(1));
  host.run();
  EXPECT_EQ(port_events(eq, Subtype::DOWN), 1u);
  host.port.up = true;
  host.advance(std::chrono::seconds(1));
  host.run();
  EXPECT_EQ(port_events(eq, Subtype::ACTIVE), 2u);
}

TEST_F(PortRegisterTest, ThePortOfAVportThatGoesDownIsDownForItsDriver) {
  using Subtype = s::port_change_subtype;
  (void)host.create_eq(4, 1ull << 0x09, 0);
  const auto eq = host.last_buffer;
  host.run();
  const auto set_vport = [&](s::vport_state state) {
    Input<s::modify_vport_state_in> in(Opcode::MODIFY_VPORT_STATE);
    in->set(s::modify_vport_state_in::admin_state, static_cast<std::uint32_t>(state));
    EXPECT_TRUE(host.execute<s::modify_vport_state_out>(in).ok());
  };
  set_vport(s::vport_state::DOWN);
  EXPECT_EQ(port_events(eq, Subtype::DOWN), 1u);
  EXPECT_FALSE(state_up());
  set_vport(s::vport_state::UP);
  EXPECT_EQ(port_events(eq, Subtype::ACTIVE), 2u);
  EXPECT_TRUE(state_up());
}

// "if the port goes up and then down, the operational status should go to 'down by port failure'
// and can only go back up upon explicit command" (PRM Table 110).
TEST_F(PortRegisterTest, APortThatIsUpOnceStaysDownAfterAFailure) {
  using R = s::reg_paos;
  const auto oper = [&] {
    host.advance(std::chrono::seconds(1));
    host.run();
    util::Struct<R> paos;
    paos.set(R::local_port, 1);
    EXPECT_TRUE(access<R>(s::register_id::PAOS, true, paos).ok());
    EXPECT_EQ(paos.get(R::admin_status), static_cast<std::uint32_t>(s::paos_admin_status::UP_ONCE));
    return s::paos_oper_status(paos.get(R::oper_status));
  };
  EXPECT_TRUE(set_admin(s::paos_admin_status::UP_ONCE).ok());
  EXPECT_EQ(oper(), s::paos_oper_status::UP);
  host.port.up = false;
  EXPECT_EQ(oper(), s::paos_oper_status::DOWN_BY_FAILURE);
  host.port.up = true;
  EXPECT_EQ(oper(), s::paos_oper_status::DOWN_BY_FAILURE);
  EXPECT_TRUE(set_admin(s::paos_admin_status::UP_ONCE).ok());
  EXPECT_EQ(oper(), s::paos_oper_status::UP);
}

TEST_F(PortRegisterTest, HostEndiannessLittleIsAccepted) {
  using R = s::reg_host_endianness;
  util::Struct<R> content;
  EXPECT_TRUE(access<R>(s::register_id::HOST_ENDIANNESS, false, content).ok());
  content.set(R::he, 1);
  EXPECT_EQ(access<R>(s::register_id::HOST_ENDIANNESS, false, content).status(), Code::BAD_PARAM);
}

TEST_F(PortRegisterTest, NodeDescriptionIsKept) {
  using R = s::reg_node_desc;
  util::Struct<R> content;
  ASSERT_TRUE(access<R>(s::register_id::NODE_DESC, true, content).ok());
  EXPECT_NE(content.bytes()[0], std::byte{0});
  content.bytes()[0] = std::byte{'X'};
  EXPECT_TRUE(access<R>(s::register_id::NODE_DESC, false, content).ok());
  util::Struct<R> again;
  ASSERT_TRUE(access<R>(s::register_id::NODE_DESC, true, again).ok());
  EXPECT_EQ(again.bytes()[0], std::byte{'X'});
}

TEST_F(PortRegisterTest, ModuleIsAQsfp28WithValidChecksums) {
  using R = s::reg_mcia;
  std::vector<std::byte> eeprom;
  for (std::uint32_t at = 0; at < 256; at += 48) {
    util::Struct<R> mcia;
    mcia.set(R::i2c_device_address, 0x50);
    mcia.set(R::device_address, at);
    mcia.set(R::size, 48);
    ASSERT_TRUE(access<R>(s::register_id::MCIA, true, mcia).ok());
    EXPECT_EQ(mcia.get(R::status), 0u);
    const auto data = mcia.get(R::dwords);
    eeprom.insert(eeprom.end(), data.begin(), data.begin() + 48);
  }
  EXPECT_EQ(eeprom[0], std::byte{0x11});
  const auto sum = [&](std::size_t from, std::size_t to) {
    unsigned total = 0;
    for (auto i = from; i < to; ++i) total += std::to_integer<unsigned>(eeprom[i]);
    return static_cast<std::byte>(total);
  };
  EXPECT_EQ(sum(128, 191), eeprom[191]);
  EXPECT_EQ(sum(192, 223), eeprom[223]);
}

// SFF-8636 6.2.2, byte 2: "flat memory: only page 0 implemented".
TEST_F(PortRegisterTest, AModuleOfFlatMemoryHasPageZeroAlone) {
  using R = s::reg_mcia;
  for (std::uint32_t page = 0; page < 3; ++page) {
    util::Struct<R> mcia;
    mcia.set(R::i2c_device_address, 0x50);
    mcia.set(R::page_number, page);
    mcia.set(R::size, 1);
    ASSERT_TRUE(access<R>(s::register_id::MCIA, true, mcia).ok());
    EXPECT_EQ(mcia.get(R::dwords)[0], page == 0 ? std::byte{0x11} : std::byte{0}) << page;
  }
}

TEST_F(PortRegisterTest, FourLanesOfTheModuleAreThePort) {
  using R = s::reg_pmlp;
  using Lane = s::lane_2_module_mapping;
  util::Struct<R> pmlp;
  pmlp.set(R::local_port, 1);
  ASSERT_TRUE(access<R>(s::register_id::PMLP, true, pmlp).ok());
  EXPECT_EQ(pmlp.get(R::width), 4u);
  unsigned number = 0;
  for (const auto lane : {pmlp.get(R::lane0_module_mapping), pmlp.get(R::lane1_module_mapping),
                          pmlp.get(R::lane2_module_mapping), pmlp.get(R::lane3_module_mapping)}) {
    EXPECT_EQ(lane.get(Lane::module), 0u);
    EXPECT_EQ(lane.get(Lane::rx_lane), number);
    EXPECT_EQ(lane.get(Lane::tx_lane), number++);
  }
  EXPECT_EQ(access<R>(s::register_id::PMLP, false, pmlp).status(), Code::BAD_PARAM) << "read-only";
}

TEST_F(PortRegisterTest, ThePortHasOneVirtualLane) {
  using R = s::reg_pvlc;
  util::Struct<R> pvlc;
  pvlc.set(R::local_port, 1);
  ASSERT_TRUE(access<R>(s::register_id::PVLC, true, pvlc).ok());
  EXPECT_EQ(pvlc.get(R::vl_hw_cap), 1u);
  EXPECT_EQ(pvlc.get(R::vl_admin), 1u);
  EXPECT_EQ(pvlc.get(R::vl_operational), 1u);
  EXPECT_EQ(access<R>(s::register_id::PVLC, false, pvlc).status(), Code::BAD_PARAM) << "read-only";
}

TEST_F(PortRegisterTest, FramesAreAlwaysCheckedForTheirFcs) {
  using R = s::reg_pcmr;
  util::Struct<R> pcmr;
  pcmr.set(R::local_port, 1);
  EXPECT_TRUE(access<R>(s::register_id::PCMR, false, pcmr).ok());
  ASSERT_TRUE(access<R>(s::register_id::PCMR, true, pcmr).ok());
  EXPECT_EQ(pcmr.get(R::fcs_cap), 0u) << "it cannot be switched off";
  EXPECT_EQ(pcmr.get(R::fcs_chk), 1u);
}

TEST_F(PortRegisterTest, TheBeaconEndsAfterItsDuration) {
  using R = s::reg_mlcr;
  util::Struct<R> mlcr;
  mlcr.set(R::local_port, 1);
  mlcr.set(R::beacon_duration, 10);
  ASSERT_TRUE(access<R>(s::register_id::MLCR, false, mlcr).ok());
  host.advance(std::chrono::milliseconds(6500));
  ASSERT_TRUE(access<R>(s::register_id::MLCR, true, mlcr).ok());
  EXPECT_EQ(mlcr.get(R::beacon_duration), 10u);
  EXPECT_EQ(mlcr.get(R::beacon_remain), 4u);
  host.advance(std::chrono::seconds(4));
  ASSERT_TRUE(access<R>(s::register_id::MLCR, true, mlcr).ok());
  EXPECT_EQ(mlcr.get(R::beacon_remain), 0u);
  mlcr.set(R::beacon_duration, 0xFFFF);
  ASSERT_TRUE(access<R>(s::register_id::MLCR, false, mlcr).ok());
  host.advance(std::chrono::hours(24));
  ASSERT_TRUE(access<R>(s::register_id::MLCR, true, mlcr).ok());
  EXPECT_EQ(mlcr.get(R::beacon_remain), 0xFFFFu) << "until it is switched off";
}

TEST_F(PortRegisterTest, UnknownRegistersAreRefused) {
  using R = s::reg_pcam;
  util::Struct<R> content;
  EXPECT_EQ(access<R>(s::register_id::PCAM, true, content).status(), Code::BAD_PARAM);
}

TEST_F(PortRegisterTest, AnotherPortIsRefused) {
  using R = s::reg_pmtu;
  util::Struct<R> pmtu;
  pmtu.set(R::local_port, 2);
  EXPECT_EQ(access<R>(s::register_id::PMTU, true, pmtu).status(), Code::BAD_INDEX);
}

}  // namespace
}  // namespace softhca::connectx

// QUERY_HCA_CAP and SET_HCA_CAP (PRM 12.3.3, 12.3.4), QUERY_ADAPTER, QUERY_SPECIAL_CONTEXTS.

#include "connectx/function/capabilities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "connectx/fake_host.h"
#include "spec/connectx/hca.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;
using Cap = s::hca_cap;
using Type = Capabilities::Type;

constexpr std::array kGroups{Type::GENERAL,     Type::ETHERNET_OFFLOADS, Type::ATOMIC,
                             Type::ROCE,        Type::FLOW_TABLE_NIC,    Type::ODP,
                             Type::DEVICE_EVENT};

class CapabilitiesTest : public testing::Test {
 protected:
  CapabilitiesTest() { host.enable(); }

  Reply query(Type type, bool current) {
    const auto op_mod = static_cast<unsigned>(type) << 1 | (current ? 1u : 0u);
    Input<s::query_hca_cap_in> in(Opcode::QUERY_HCA_CAP, static_cast<std::uint16_t>(op_mod));
    return host.execute<s::query_hca_cap_out>(in);
  }
  std::vector<std::byte> image(Type type, bool current) {
    const auto reply = query(type, current);
    EXPECT_TRUE(reply.ok());
    const auto bytes = reply.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
    return {bytes.begin(), bytes.end()};
  }
  Reply set(Type type, const std::vector<std::byte>& image) {
    Input<s::set_hca_cap_in> in(Opcode::SET_HCA_CAP,
                                static_cast<std::uint16_t>(static_cast<unsigned>(type) << 1));
    std::ranges::copy(image, (*in).sub(s::set_hca_cap_in::capability).begin());
    return host.execute<s::set_hca_cap_out>(in);
  }

  FakeHost host;
};

template <class Layout>
void expect_current_within_maximum(std::span<const std::byte> current,
                                   std::span<const std::byte> maximum) {
  for (const auto& field : Layout::kFields) {
    if (field.hi > 31) continue;
    const auto value = [&](std::span<const std::byte> image) {
      const auto word = util::load_be32(image.data() + field.offset) >> field.lo;
      const auto width = field.hi - field.lo + 1;
      return width == 32 ? word : word & ((1u << width) - 1);
    };
    EXPECT_LE(value(current), value(maximum)) << field.name;
  }
}

TEST_F(CapabilitiesTest, CurrentIsNeverAboveMaximum) {
  expect_current_within_maximum<Cap>(image(Type::GENERAL, true), image(Type::GENERAL, false));
  expect_current_within_maximum<s::atomic_cap>(image(Type::ATOMIC, true),
                                               image(Type::ATOMIC, false));
  expect_current_within_maximum<s::roce_cap>(image(Type::ROCE, true), image(Type::ROCE, false));
}

// Bit n of quadword i is event type 64 * i + n.
TEST_F(CapabilitiesTest, ReportsTheEventsThatProcessesMaySubscribeTo) {
  using Event = s::event_type;
  const auto bytes = image(Type::DEVICE_EVENT, true);
  const auto told = [&](std::uint32_t offset) { return util::load_be64(bytes.data() + offset); };
  const auto bits = [](std::initializer_list<Event> events) {
    std::uint64_t mask = 0;
    for (const auto event : events) mask |= std::uint64_t{1} << static_cast<unsigned>(event);
    return mask;
  };
  EXPECT_EQ(told(s::device_event_cap::user_affiliated_events.kOffset),
            bits({Event::COMMUNICATION_ESTABLISHED, Event::SQ_DRAINED, Event::CQ_ERROR,
                  Event::LOCAL_WQ_CATASTROPHIC_ERROR, Event::INVALID_REQUEST_LOCAL_WQ_ERROR,
                  Event::LOCAL_ACCESS_VIOLATION_WQ_ERROR, Event::LOCAL_SRQ_CATASTROPHIC_ERROR,
                  Event::LAST_WQE_REACHED, Event::SRQ_LIMIT, Event::DCT_DRAINED,
                  Event::DCT_ACCESS_KEY_VIOLATION}));
  EXPECT_EQ(told(s::device_event_cap::user_unaffiliated_events.kOffset),
            bits({Event::PORT_STATE_CHANGE}));
}

TEST_F(CapabilitiesTest, GroupsWithNothingToReportAreZero) {
  for (const auto type : {Type::QOS, Type::ESWITCH, Type::DEVICE_MEMORY}) {
    const auto bytes = image(type, true);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; }));
  }
}

TEST_F(CapabilitiesTest, UnknownGroupsAreRefused) {
  EXPECT_EQ(query(static_cast<Type>(0xFF), true).status(), Code::BAD_OP);
  EXPECT_EQ(query(static_cast<Type>(0xFE), true).status(), Code::BAD_OP);
}

// A process (DevX) provides space only for the capabilities that it knows.
TEST_F(CapabilitiesTest, AsMuchIsReportedAsThereIsRoomFor) {
  const auto whole = image(Type::GENERAL, true);
  Input<s::query_hca_cap_in> in(Opcode::QUERY_HCA_CAP, 1);
  constexpr std::size_t kRoom = 100;
  constexpr auto kHead = s::query_hca_cap_out::capability.kOffset;
  const auto reply = host.execute(in.bytes(), kHead + kRoom);
  ASSERT_TRUE(reply.ok()) << to_string(reply.status());
  ASSERT_EQ(reply.out.size(), kHead + kRoom);
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + kRoom, reply.out.begin() + kHead));
  EXPECT_EQ(host.execute(in.bytes(), kHead - 1).status(), Code::BAD_OUTPUT_LEN);
}

TEST_F(CapabilitiesTest, GroupsThatAreNotThereAreNotAnnounced) {
  const auto bytes = image(Type::GENERAL, false);
  const util::View<Cap> cap(bytes);
  EXPECT_EQ(cap.get(Cap::qos), 0u);
  EXPECT_EQ(cap.get(Cap::eswitch_manager), 0u);
  EXPECT_EQ(cap.get(Cap::hca_cap_2), 0u);
  EXPECT_EQ(cap.get(Cap::port_selection_cap), 0u);
  EXPECT_EQ(cap.get(Cap::pcam_reg), 0u);
  EXPECT_EQ(cap.get(Cap::mcam_reg), 0u);
}

// The capabilities that mlx5_eth_supported() and the probe of mlx5e require, beside those of
// EachFeatureOfTheNetdevIsAnnounced.
TEST_F(CapabilitiesTest, MeetsThePreconditionsOfTheNetdev) {
  const auto general = image(Type::GENERAL, true);
  const util::View<Cap> cap(general);
  EXPECT_EQ(cap.get(Cap::port_type), 1u);
  EXPECT_EQ(cap.get(Cap::eth_net_offloads), 1u);
  EXPECT_EQ(cap.get(Cap::nic_flow_table), 1u);
  EXPECT_GE(cap.get(Cap::max_wqe_sz_sq), 1024u);
  EXPECT_EQ(cap.get(Cap::log_bf_reg_size), 9u);
  const auto flow = image(Type::FLOW_TABLE_NIC, true);
  using Flow = s::flow_table_nic_cap;
  using Properties = s::flow_table_properties;
  const auto receive = util::View<Flow>(flow).get(Flow::flow_table_properties_nic_receive);
  EXPECT_EQ(receive.get(Properties::ft_support), 1u);
  EXPECT_GE(receive.get(Properties::max_ft_level), 59u);
  EXPECT_GE(receive.get(Properties::log_max_ft_size), 16u);
}

// Drivers use a feature of the netdev only if its bit is set.
TEST_F(CapabilitiesTest, EachFeatureOfTheNetdevIsAnnounced) {
  const auto general = image(Type::GENERAL, true);
  const util::View<Cap> cap(general);
  EXPECT_EQ(cap.get(Cap::modify_tis), 1u);
  EXPECT_EQ(cap.get(Cap::pad_tx_eth_packet), 1u);
  EXPECT_EQ(cap.get(Cap::basic_cyclic_rcv_wqe), 1u);
  using Eth = s::eth_offload_cap;
  const auto ethernet = image(Type::ETHERNET_OFFLOADS, true);
  const util::View<Eth> eth(ethernet);
  EXPECT_EQ(eth.get(Eth::csum_cap), 1u);
  EXPECT_EQ(eth.get(Eth::vlan_cap), 1u);
  EXPECT_EQ(eth.get(Eth::max_lso_cap), 18u);
  EXPECT_EQ(eth.get(Eth::rss_ind_tbl_cap), 11u);
  EXPECT_EQ(eth.get(Eth::self_lb_en_modifiable), 1u);
  EXPECT_EQ(eth.get(Eth::self_lb_uc), 1u);
  EXPECT_EQ(eth.get(Eth::self_lb_mc), 1u);
  EXPECT_EQ(eth.get(Eth::multi_pkt_send_wqe), 0u);
  EXPECT_EQ(eth.get(Eth::wqe_vlan_insert), 0u) << "not by a ConnectX-4";
  EXPECT_EQ(eth.get(Eth::wqe_inline_mode), 0u) << "the L2 header must be inline";
  EXPECT_EQ(eth.get(Eth::cqe_checksum_full), 1u);
  using Flow = s::flow_table_nic_cap;
  using Properties = s::flow_table_properties;
  const auto flow = image(Type::FLOW_TABLE_NIC, true);
  const auto receive = util::View<Flow>(flow).get(Flow::flow_table_properties_nic_receive);
  EXPECT_EQ(receive.get(Properties::flow_tag), 1u);
  EXPECT_EQ(receive.get(Properties::flow_counter), 1u);
  EXPECT_EQ(receive.get(Properties::flow_modify_en), 1u);
  EXPECT_EQ(receive.get(Properties::modify_root), 1u);
  EXPECT_EQ(receive.get(Properties::reset_root_to_default), 1u);
  EXPECT_EQ(receive.get(Properties::identified_miss_table), 1u);
  EXPECT_EQ(receive.get(Properties::flow_table_modify), 1u);
}

// The same of RDMA. The list is the test's own, so a row that the device's list loses is missed.
TEST_F(CapabilitiesTest, EachFeatureOfRdmaIsAnnounced) {
  const auto general = image(Type::GENERAL, true);
  const util::View<Cap> cap(general);
  EXPECT_EQ(cap.get(Cap::roce), 1u);
  EXPECT_EQ(cap.get(Cap::rc), 1u);
  EXPECT_EQ(cap.get(Cap::uc), 1u);
  EXPECT_EQ(cap.get(Cap::ud), 1u);
  EXPECT_EQ(cap.get(Cap::xrc), 1u);
  EXPECT_EQ(cap.get(Cap::dct), 1u);
  EXPECT_EQ(cap.get(Cap::atomic), 1u);
  EXPECT_EQ(cap.get(Cap::sctr_data_cqe), 1u);
  EXPECT_EQ(cap.get(Cap::dc_req_scat_data_cqe), 1u);
  EXPECT_EQ(cap.get(Cap::fixed_buffer_size), 1u);
  EXPECT_EQ(cap.get(Cap::null_mkey), 1u);
  EXPECT_EQ(cap.get(Cap::dump_fill_mkey), 1u);
  EXPECT_EQ(cap.get(Cap::umr_extended_translation_offset), 1u);
  EXPECT_EQ(cap.get(Cap::relaxed_ordering_write), 1u);
  EXPECT_EQ(cap.get(Cap::relaxed_ordering_write_umr), 1u);
  EXPECT_EQ(cap.get(Cap::sho), 1u);
  EXPECT_EQ(cap.get(Cap::sigerr_domain_and_sig_type), 1u);
  EXPECT_EQ(cap.get(Cap::pg), 1u);
  EXPECT_EQ(cap.get(Cap::imaicl), 1u);
  EXPECT_EQ(cap.get(Cap::rts2rts_qp_udp_sport), 1u);
  EXPECT_EQ(cap.get(Cap::rts2rts_qp_counters_set_id), 1u);
  EXPECT_EQ(cap.get(Cap::block_lb_mc), 1u);
  EXPECT_EQ(cap.get(Cap::cc_query_allowed), 1u);
  EXPECT_EQ(cap.get(Cap::cc_modify_allowed), 1u);
  EXPECT_EQ(cap.get(Cap::out_of_seq_cnt), 1u);
  EXPECT_EQ(cap.get(Cap::retransmission_q_counters), 1u);
  EXPECT_EQ(cap.get(Cap::enhanced_error_q_counters), 1u);
}

// Beside those of EachFeatureOfRdmaIsAnnounced, as below.
TEST_F(CapabilitiesTest, MeetsThePreconditionsOfTheRdmaDevice) {
  const auto general = image(Type::GENERAL, true);
  const util::View<Cap> cap(general);
  EXPECT_EQ(cap.get(Cap::cqe_version), 1u);
  EXPECT_EQ(cap.get(Cap::umr_modify_entity_size_disabled), 0u);
  const auto roce = image(Type::ROCE, true);
  EXPECT_EQ(util::View<s::roce_cap>(roce).get(s::roce_cap::roce_version), 5u) << "RoCE v1 and v2";
  EXPECT_EQ(util::View<s::roce_cap>(roce).get(s::roce_cap::r_roce_dest_udp_port), 4791u);
}

// The capabilities that internal_fill_odp_caps() of mlx5_ib requires, explicitly and implicitly.
TEST_F(CapabilitiesTest, MeetsThePreconditionsOfOnDemandPaging) {
  const auto general = image(Type::GENERAL, true);
  const util::View<Cap> cap(general);
  EXPECT_EQ(cap.get(Cap::umr_indirect_mkey_disabled), 0u);
  // Enough for 2^47 bytes of a process, in pieces of 1 GiB.
  EXPECT_GE(cap.get(Cap::log_max_klm_list_size), 17u);
  using Odp = s::odp_cap;
  using Scheme = s::odp_scheme_cap;
  using OdpService = s::odp_per_transport_service_cap;
  const auto odp = image(Type::ODP, true);
  const auto scheme = util::View<Odp>(odp).get(Odp::transport_page_fault_scheme_cap);
  for (const auto& service : {scheme.get(Scheme::rc_odp_caps), scheme.get(Scheme::xrc_odp_caps),
                              scheme.get(Scheme::dc_odp_caps)}) {
    EXPECT_EQ(service.get(OdpService::send), 1u);
    EXPECT_EQ(service.get(OdpService::receive), 1u);
    EXPECT_EQ(service.get(OdpService::write), 1u);
    EXPECT_EQ(service.get(OdpService::read), 1u);
    EXPECT_EQ(service.get(OdpService::atomic), 1u);
    EXPECT_EQ(service.get(OdpService::srq_receive), 1u);
  }
  EXPECT_EQ(scheme.get(Scheme::ud_odp_caps).get(OdpService::send), 1u);
  EXPECT_EQ(scheme.get(Scheme::ud_odp_caps).get(OdpService::receive), 0u);
  // mlx5_core writes back the values that it has read.
  EXPECT_TRUE(set(Type::ODP, odp).ok());
  EXPECT_EQ(image(Type::ODP, true), odp);
}

TEST_F(CapabilitiesTest, CapabilitiesThatTheDriverSetsAreCurrentAfterwards) {
  auto bytes = image(Type::GENERAL, true);
  util::MutableView<Cap>(bytes).set(Cap::log_max_qp, 12);
  EXPECT_TRUE(set(Type::GENERAL, bytes).ok());
  EXPECT_EQ(image(Type::GENERAL, true), bytes);
  EXPECT_EQ(util::View<Cap>(image(Type::GENERAL, false)).get(Cap::log_max_qp), 17u);
}

TEST_F(CapabilitiesTest, AboveTheMaximumIsRefusedAndChangesNothing) {
  const auto before = image(Type::GENERAL, true);
  auto bytes = before;
  util::MutableView<Cap>(bytes).set(Cap::log_max_qp, 18);
  EXPECT_EQ(set(Type::GENERAL, bytes).status(), Code::EXCEED_LIM);
  EXPECT_EQ(image(Type::GENERAL, true), before);
}

TEST_F(CapabilitiesTest, ReadOnlyFieldsStayAsTheyAre) {
  auto bytes = image(Type::GENERAL, true);
  util::MutableView<Cap>(bytes).set(Cap::eswitch_manager, 1);
  EXPECT_TRUE(set(Type::GENERAL, bytes).ok());
  EXPECT_EQ(util::View<Cap>(image(Type::GENERAL, true)).get(Cap::eswitch_manager), 0u);
}

// mlx5: the image that switches the endianness mode is zero elsewhere.
TEST_F(CapabilitiesTest, AtomicEndiannessModeIsSetAlone) {
  const auto mode = [&] {
    const auto bytes = image(Type::ATOMIC, true);
    return util::View<s::atomic_cap>(bytes).get(s::atomic_cap::atomic_req_8B_endianness_mode);
  };
  EXPECT_EQ(mode(), 0u);
  std::vector<std::byte> bytes(Capabilities::kImageSize);
  util::MutableView<s::atomic_cap>(bytes).set(s::atomic_cap::atomic_req_8B_endianness_mode, 1);
  EXPECT_TRUE(set(Type::ATOMIC, bytes).ok());
  EXPECT_EQ(mode(), 1u);
  const auto now = image(Type::ATOMIC, true);
  EXPECT_EQ(util::View<s::atomic_cap>(now).get(s::atomic_cap::atomic_operations), 15u);
}

// iPXE and mlx5 of Linux 3.11 only know the first 256 bytes of the capabilities.
TEST_F(CapabilitiesTest, AShortImageLeavesTheOtherCapabilities) {
  constexpr std::size_t kHeader = 16;
  const auto before = image(Type::GENERAL, true);
  const auto set_first = [&](std::size_t size, std::uint32_t log_max_qp) {
    Input<s::set_hca_cap_in> in(Opcode::SET_HCA_CAP);
    std::ranges::copy(before, (*in).sub(s::set_hca_cap_in::capability).begin());
    util::MutableView<Cap>((*in).sub(s::set_hca_cap_in::capability))
        .set(Cap::log_max_qp, log_max_qp);
    return host.execute(std::span(in.bytes()).first(kHeader + size), s::set_hca_cap_out::kSize);
  };
  EXPECT_TRUE(set_first(256, 14).ok());
  auto now = image(Type::GENERAL, true);
  EXPECT_EQ(util::View<Cap>(now).get(Cap::log_max_qp), 14u);
  util::MutableView<Cap>(now).set(Cap::log_max_qp, util::View<Cap>(before).get(Cap::log_max_qp));
  EXPECT_EQ(now, before) << "log_max_sq among them, which is further back";
  EXPECT_TRUE(set_first(0, 15).ok());
  EXPECT_EQ(util::View<Cap>(image(Type::GENERAL, true)).get(Cap::log_max_qp), 14u);
  EXPECT_EQ(host.execute(std::vector<std::byte>(kHeader - 4), 16).status(), Code::BAD_OP)
      << "no command at all";
}

TEST_F(CapabilitiesTest, SetAfterInitHcaIsRefused) {
  FakeHost other;
  other.initialize();
  Input<s::set_hca_cap_in> in(Opcode::SET_HCA_CAP);
  EXPECT_EQ(other.execute<s::set_hca_cap_out>(in).status(), Code::BAD_SYS_STATE);
}

/// Clears the bits of all fields of the structure at byte `at`.
template <class Layout>
void clear_fields(std::vector<std::byte>& image, std::size_t at = 0) {
  for (const auto& field : Layout::kFields) {
    auto* const word = image.data() + at + field.offset;
    const auto ones = ~std::uint64_t{0} >> (63 - field.hi) >> field.lo << field.lo;
    if (field.hi > 31) {
      util::store_be64(word, util::load_be64(word) & ~ones);
    } else {
      util::store_be32(word, util::load_be32(word) & ~static_cast<std::uint32_t>(ones));
    }
  }
}

TEST_F(CapabilitiesTest, SnifferTablesCanWhatReceiveTablesCan) {
  using Flow = s::flow_table_nic_cap;
  const auto bytes = image(Type::FLOW_TABLE_NIC, true);
  const util::View<Flow> flow(bytes);
  const auto receive = flow.get(Flow::flow_table_properties_nic_receive).bytes();
  EXPECT_NE(util::load_be32(receive.data()), 0u);
  EXPECT_TRUE(std::ranges::equal(
      receive, flow.get(Flow::flow_table_properties_nic_receive_sniffer).bytes()));
  EXPECT_TRUE(std::ranges::equal(
      receive, flow.get(Flow::flow_table_properties_nic_transmit_sniffer).bytes()));
}

TEST_F(CapabilitiesTest, BitsOfNoFieldAreZero) {
  for (const auto type : kGroups) {
    for (const bool current : {false, true}) {
      auto bytes = image(type, current);
      EXPECT_NE(bytes, std::vector<std::byte>(bytes.size()));
      switch (type) {
        case Type::GENERAL:
          clear_fields<Cap>(bytes);
          break;
        case Type::ETHERNET_OFFLOADS:
          clear_fields<s::eth_offload_cap>(bytes);
          break;
        case Type::ATOMIC:
          clear_fields<s::atomic_cap>(bytes);
          break;
        case Type::ROCE:
          clear_fields<s::roce_cap>(bytes);
          break;
        case Type::DEVICE_EVENT:
          clear_fields<s::device_event_cap>(bytes);
          break;
        case Type::ODP:
          for (const std::size_t at : {0x10, 0x18, 0x1C, 0x20}) {
            clear_fields<s::odp_per_transport_service_cap>(bytes, at);
          }
          break;
        default: {
          using Flow = s::flow_table_nic_cap;
          using Properties = s::flow_table_properties;
          using Fields = s::flow_table_fields_supported;
          clear_fields<Flow>(bytes);
          for (const auto at : {Flow::flow_table_properties_nic_receive.kOffset,
                                Flow::flow_table_properties_nic_transmit.kOffset,
                                Flow::flow_table_properties_nic_receive_sniffer.kOffset,
                                Flow::flow_table_properties_nic_transmit_sniffer.kOffset}) {
            clear_fields<Properties>(bytes, at);
            clear_fields<Fields>(bytes, at + Properties::ft_field_support.kOffset);
            clear_fields<Fields>(bytes, at + Properties::ft_field_bitmask_support.kOffset);
          }
        }
      }
      EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size())) << static_cast<unsigned>(type);
    }
  }
}

TEST_F(CapabilitiesTest, TheAdapterHasAVendorAndABoardName) {
  Input<s::query_adapter_in> in(Opcode::QUERY_ADAPTER);
  const auto reply = host.execute<s::query_adapter_out>(in);
  ASSERT_TRUE(reply.ok());
  using Block = s::query_adapter_param_block;
  const auto block =
      reply.as<s::query_adapter_out>().get(s::query_adapter_out::query_adapter_struct);
  EXPECT_EQ(block.get(Block::ieee_vendor_id), 0x0002C9u);
  const auto psid = block.get(Block::vsd_contd_psid);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(psid.data())), "SHC_0000000001");
}

}  // namespace
}  // namespace softhca::connectx

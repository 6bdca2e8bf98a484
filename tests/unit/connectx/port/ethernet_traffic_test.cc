// Effects of the port's state, MTU and counters on Ethernet traffic (PRM 3.4, 7.3, 11.1, 12.16,
// 12.17).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "connectx/base/resources.h"
#include "connectx/ethernet/ethernet_host.h"
#include "connectx/port/network_port.h"
#include "connectx/port/port_registers.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/registers.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

namespace s = spec::connectx;

constexpr std::uint64_t kGroupMac = 0x01005E000001;

/// A netdev: one SQ and one RQ of the same transport domain.
class EthernetPort : public ::testing::Test {
 protected:
  EthernetPort()
      : send_cqn(host.create_cq(8)),
        receive_cqn(host.create_cq(8)),
        sqn(host.create_sq(send_cqn, 8)),
        rqn(host.create_rq(receive_cqn, 6, 4)),
        tirn(host.create_direct_tir(rqn)) {
    host.steer_all_to(tirn);
    for (int i = 0; i < 60; ++i) host.post_receive(rqn, 4096);
  }

  void send(const Bytes& frame) {
    const auto buffer = host.allocate(frame.size());
    std::ranges::copy(frame, host.at(buffer));
    host.post_send(
        sqn, Wqe(s::wqe_opcode::SEND, sqn, host.posted(sqn))
                 .eth({})
                 .pointer(EthernetHost::kKey, buffer, static_cast<std::uint32_t>(frame.size()))
                 .finish());
    EXPECT_FALSE(host.poll(send_cqn).empty()) << "what is dropped is completed too";
  }
  /// True if the RQ gets a frame that arrives.
  bool receives(const Bytes& frame) {
    host.arrive(frame);
    return !host.poll(receive_cqn).empty();
  }
  /// True if the RQ gets the looped frame.
  bool gets_back() {
    host.return_looped();
    return !host.poll(receive_cqn).empty();
  }

  template <class Register>
  Reply access(s::register_id id, bool read, util::Struct<Register>& content) {
    using In = s::access_register_in;
    content.set(Register::local_port, 1);
    const auto answer = host.call<s::access_register_out, In>(
        Opcode::ACCESS_REG,
        [&](util::MutableView<In> in) { in.set(In::register_id, static_cast<std::uint32_t>(id)); },
        content.bytes(), read ? 1 : 0, Register::kSize);
    const auto body = std::span(answer.out).subspan(s::access_register_out::register_data_offset);
    if (answer.ok()) std::ranges::copy(body.first(Register::kSize), content.bytes().begin());
    return answer;
  }
  void set_port(s::paos_admin_status status) {
    using R = s::reg_paos;
    util::Struct<R> paos;
    paos.set(R::admin_status, static_cast<std::uint32_t>(status));
    paos.set(R::ase, 1);
    EXPECT_TRUE(access(s::register_id::PAOS, false, paos).ok());
  }
  void set_mtu(std::uint32_t mtu) {
    util::Struct<s::reg_pmtu> pmtu;
    pmtu.set(s::reg_pmtu::admin_mtu, mtu);
    EXPECT_TRUE(access(s::register_id::PMTU, false, pmtu).ok());
  }
  void modify_vport(const std::function<void(util::MutableView<s::modify_nic_vport_field_select>,
                                             util::MutableView<s::nic_vport_context>)>& fill,
                    std::span<const std::byte> list = {}) {
    using In = s::modify_nic_vport_context_in;
    const auto answer = host.call<s::modify_nic_vport_context_out, In>(
        Opcode::MODIFY_NIC_VPORT_CONTEXT,
        [&](util::MutableView<In> in) {
          fill(in.sub(In::field_select), in.sub(In::nic_vport_context));
        },
        list);
    EXPECT_TRUE(answer.ok()) << answer.reason();
  }

  /// A group of PPCNT with its fields as C++ members.
  struct Counters {
    util::Struct<s::reg_ppcnt> content;
    template <class C, class Field>
    std::uint64_t get(Field field) const {
      return util::View<C>(util::View<s::reg_ppcnt>(content).get(s::reg_ppcnt::counter_set))
          .get(field);
    }
  };
  template <class C, class Field>
  std::uint64_t ppcnt(s::ppcnt_group group, Field field, unsigned prio_tc = 0, bool clear = false) {
    Counters counters;
    counters.content.set(s::reg_ppcnt::grp, static_cast<std::uint32_t>(group));
    counters.content.set(s::reg_ppcnt::prio_tc, prio_tc);
    counters.content.set(s::reg_ppcnt::clr, clear);
    EXPECT_TRUE(access(s::register_id::PPCNT, true, counters.content).ok());
    return counters.get<C>(field);
  }
  template <class Field>
  std::uint64_t ieee(Field field) {
    return ppcnt<s::ppcnt_ieee_802_3>(s::ppcnt_group::IEEE_802_3, field);
  }
  template <class Field>
  std::uint64_t rfc_2863(Field field) {
    return ppcnt<s::ppcnt_rfc_2863>(s::ppcnt_group::RFC_2863, field);
  }
  template <class Field>
  std::uint64_t rfc_2819(Field field) {
    return ppcnt<s::ppcnt_rfc_2819>(s::ppcnt_group::RFC_2819, field);
  }
  template <class Field>
  std::uint64_t vport_packets(Field field, bool clear = false) {
    using In = s::query_vport_counter_in;
    using Out = s::query_vport_counter_out;
    const auto answer = host.call<Out, In>(
        Opcode::QUERY_VPORT_COUNTER, [&](util::MutableView<In> in) { in.set(In::clear, clear); });
    EXPECT_TRUE(answer.ok()) << answer.reason();
    return answer.template as<Out>().get(field).get(s::traffic_counter::packets);
  }

  EthernetHost host{{.model = without_inline_headers()}};
  std::uint32_t send_cqn, receive_cqn, sqn, rqn, tirn;
};

// State ------------------------------------------------------------------------------------------

TEST_F(EthernetPort, PortThatIsDownNeitherSendsNorReceives) {
  const auto out = make_frame({.destination = kOther});
  set_port(s::paos_admin_status::DOWN);
  send(out);
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_FALSE(receives(make_frame({})));
  EXPECT_EQ(host.received(rqn), 0u) << "no WQE is spent";
  set_port(s::paos_admin_status::UP);
  send(out);
  EXPECT_EQ(host.port.sent.size(), 1u);
  EXPECT_TRUE(receives(make_frame({})));
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_out_discards), 1u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 1u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_transmitted_ok), 1u);
}

TEST_F(EthernetPort, VportThatIsDownNeitherSendsNorReceives) {
  const auto set_vport = [&](s::vport_state state) {
    using In = s::modify_vport_state_in;
    EXPECT_TRUE((host.call<s::modify_vport_state_out, In>(
                         Opcode::MODIFY_VPORT_STATE,
                         [&](util::MutableView<In> in) {
                           in.set(In::admin_state, static_cast<std::uint32_t>(state));
                         })
                     .ok()));
  };
  const auto out = make_frame({.destination = kOther});
  set_vport(s::vport_state::DOWN);
  send(out);
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_FALSE(receives(make_frame({})));
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_in_discards), 1u);
  set_vport(s::vport_state::UP);
  send(out);
  EXPECT_EQ(host.port.sent.size(), 1u);
  EXPECT_TRUE(receives(make_frame({})));
}

TEST_F(EthernetPort, NothingIsSentOverAPulledCable) {
  host.port.up = false;
  for (int i = 0; i < 20; ++i) host.run_later();  // the device polls the link every 100 ms
  send(make_frame({.destination = kOther}));
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(ppcnt<s::ppcnt_phys_layer>(s::ppcnt_group::PHYSICAL_LAYER,
                                       s::ppcnt_phys_layer::link_down_events),
            1u);
}

// MTU --------------------------------------------------------------------------------------------

TEST_F(EthernetPort, FrameLongerThanThePortsMtuIsDroppedAndCounted) {
  const auto frame = [](std::size_t size) { return make_frame({.payload = size - 54}); };
  EXPECT_TRUE(receives(frame(1518))) << "1522 with the FCS";
  EXPECT_FALSE(receives(frame(1519)));
  EXPECT_EQ(host.received(rqn), 1u) << "no WQE is spent";
  EXPECT_EQ(rfc_2819(s::ppcnt_rfc_2819::ether_stats_oversize_pkts), 1u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frame_too_long_errors), 1u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 1u);
  EXPECT_EQ(ppcnt<s::ppcnt_rfc_3635>(s::ppcnt_group::RFC_3635,
                                     s::ppcnt_rfc_3635::dot3stats_frame_too_long),
            1u);
  set_mtu(1600);
  EXPECT_TRUE(receives(frame(1519)));
  send(make_frame({.destination = kOther, .payload = 1597 - 54}));
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_out_errors), 1u);
  send(make_frame({.destination = kOther, .payload = 1596 - 54}));
  EXPECT_EQ(host.port.sent.size(), 1u);
}

TEST_F(EthernetPort, FrameLongerThanTheVportsMtuIsAnErrorOfTheVport) {
  modify_vport([](auto select, auto context) {
    select.set(s::modify_nic_vport_field_select::mtu, 1);
    context.set(s::nic_vport_context::mtu, 1000);
  });
  EXPECT_TRUE(receives(make_frame({.payload = 996 - 54})));
  EXPECT_FALSE(receives(make_frame({.payload = 997 - 54})));
  EXPECT_EQ(vport_packets(s::query_vport_counter_out::received_errors), 1u);
  EXPECT_EQ(rfc_2819(s::ppcnt_rfc_2819::ether_stats_oversize_pkts), 0u);
}

// RoCE is enabled by the vport (PRM 12.16.4, roce_en). Until then its packets are ordinary UDP.
TEST_F(EthernetPort, RocePacketsAreTheNetdevsUnlessRoceIsEnabled) {
  constexpr std::uint16_t kRocePort = 4791;
  constexpr std::size_t kBth = 14 + 20 + 8;
  const FrameSpec spec{.udp = true, .destination_port = kRocePort};
  auto frame = make_frame(spec);
  frame[kBth] = std::byte{0x04};  // SEND only of a reliable connection, with a wrong ICRC
  frame[kBth + 1] = std::byte{0};
  fix_checksums(frame, spec);
  EXPECT_TRUE(receives(frame));
  modify_vport([](auto select, auto context) {
    select.set(s::modify_nic_vport_field_select::roce_en, 1);
    context.set(s::nic_vport_context::roce_en, 1);
  });
  EXPECT_FALSE(receives(frame));
}

// Self-loopback ----------------------------------------------------------------------------------

/// Frames of its own transport domain that the TIR accepts.
class EthernetLoopback : public EthernetPort,
                         public ::testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  void enable(bool unicast, bool multicast) {
    using In = s::modify_tir_in;
    EXPECT_TRUE((host.call<s::modify_tir_out, In>(
                         Opcode::MODIFY_TIR,
                         [&](util::MutableView<In> in) {
                           in.set(In::tirn, tirn);
                           in.sub(In::modify_bitmask).set(s::modify_tir_bitmask::self_lb_en, 1);
                           const auto context = in.sub(In::tir_context);
                           context.set(s::tir_context::self_lb_en_unicast, unicast);
                           context.set(s::tir_context::self_lb_en_multicast, multicast);
                         })
                     .ok()));
  }
};

TEST_P(EthernetLoopback, FramesOfTheSameDomainAreTakenIfEnabled) {
  const auto [unicast, multicast] = GetParam();
  enable(unicast, multicast);
  send(make_frame({.destination = EthernetHost::kMac}));
  EXPECT_TRUE(host.port.sent.empty()) << "they do not reach the wire";
  EXPECT_EQ(gets_back(), unicast);
  send(make_frame({.destination = kGroupMac}));
  EXPECT_EQ(host.port.sent.size(), 1u) << "what is for many does";
  EXPECT_EQ(gets_back(), multicast);
  EXPECT_EQ(vport_packets(s::query_vport_counter_out::local_loopback),
            (unicast ? 1u : 0u) + (multicast ? 1u : 0u));
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 0u) << "nor do they come from it";
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_in_discards), 0u);
}
INSTANTIATE_TEST_SUITE_P(Bits, EthernetLoopback,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_F(EthernetPort, FramesOfAnotherDomainAreTaken) {
  host.transport_domain = host.device.driver().resources().transport_domains().allocate()->value();
  sqn = host.create_sq(send_cqn, 4);
  send(make_frame({.destination = EthernetHost::kMac}));
  EXPECT_TRUE(gets_back());
  send(make_frame({.destination = kGroupMac}));
  EXPECT_TRUE(gets_back());
}

TEST_F(EthernetPort, AddressesOfTheUnicastListAreOwn) {
  const auto frame = make_frame({.destination = kOther});
  Bytes list(8);
  util::store_be64(list.data(), kOther);
  modify_vport(
      [](auto select, auto context) {
        select.set(s::modify_nic_vport_field_select::addresses_list, 1);
        context.set(s::nic_vport_context::allowed_list_size, 1);
      },
      list);
  send(frame);
  EXPECT_TRUE(host.port.sent.empty());
  modify_vport([](auto select, auto context) {
    select.set(s::modify_nic_vport_field_select::addresses_list, 1);
    context.set(s::nic_vport_context::allowed_list_size, 0);
  });
  send(frame);
  EXPECT_EQ(host.port.sent.size(), 1u);
}

// Counters ---------------------------------------------------------------------------------------

TEST_F(EthernetPort, VportAndPortCountWhatIsSentAndReceived) {
  const auto frame = make_frame({.destination = kOther, .payload = 100});
  send(frame);
  send(make_frame({.destination = kGroupMac, .payload = 100}));
  send(make_frame({.destination = 0xFFFFFFFFFFFF, .payload = 100}));
  EXPECT_TRUE(receives(make_frame({.payload = 100})));
  EXPECT_TRUE(receives(make_frame({.destination = kGroupMac, .payload = 100})));
  EXPECT_TRUE(receives(make_frame({.destination = 0xFFFFFFFFFFFF, .payload = 100})));
  using Vport = s::query_vport_counter_out;
  EXPECT_EQ(vport_packets(Vport::transmitted_eth_unicast), 1u);
  EXPECT_EQ(vport_packets(Vport::transmitted_eth_multicast), 1u);
  EXPECT_EQ(vport_packets(Vport::transmitted_eth_broadcast), 1u);
  EXPECT_EQ(vport_packets(Vport::received_eth_unicast), 1u);
  EXPECT_EQ(vport_packets(Vport::received_eth_multicast), 1u);
  EXPECT_EQ(vport_packets(Vport::received_eth_broadcast), 1u);
  EXPECT_EQ(vport_packets(Vport::received_ib_unicast), 0u);
  using Ieee = s::ppcnt_ieee_802_3;
  EXPECT_EQ(ieee(Ieee::a_frames_transmitted_ok), 3u);
  EXPECT_EQ(ieee(Ieee::a_octets_transmitted_ok), 3 * (frame.size() + 4)) << "with FCS";
  EXPECT_EQ(ieee(Ieee::a_multicast_frames_xmitted_ok), 1u);
  EXPECT_EQ(ieee(Ieee::a_broadcast_frames_xmitted_ok), 1u);
  EXPECT_EQ(ieee(Ieee::a_frames_received_ok), 3u);
  EXPECT_EQ(ieee(Ieee::a_octets_received_ok), 3 * (frame.size() + 4));
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_in_ucast_pkts), 1u);
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_out_multicast_pkts), 1u);
  EXPECT_EQ(rfc_2819(s::ppcnt_rfc_2819::ether_stats_pkts128to255octets), 3u);
  EXPECT_EQ(rfc_2819(s::ppcnt_rfc_2819::ether_stats_pkts65to127octets), 0u);
}

TEST_F(EthernetPort, ClearOfTheVportsCountersLeavesThePorts) {
  EXPECT_TRUE(receives(make_frame({})));
  using Vport = s::query_vport_counter_out;
  EXPECT_EQ(vport_packets(Vport::received_eth_unicast, true), 1u);
  EXPECT_EQ(vport_packets(Vport::received_eth_unicast), 0u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 1u);
  EXPECT_TRUE(receives(make_frame({})));
  EXPECT_EQ(vport_packets(Vport::received_eth_unicast), 1u);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 2u);
}

TEST_F(EthernetPort, ClrResetsTheCountersOfItsGroup) {
  EXPECT_TRUE(receives(make_frame({})));
  const auto frames = [&](bool clear) {
    return ppcnt<s::ppcnt_ieee_802_3>(s::ppcnt_group::IEEE_802_3,
                                      s::ppcnt_ieee_802_3::a_frames_received_ok, 0, clear);
  };
  EXPECT_EQ(frames(true), 1u);
  EXPECT_EQ(frames(false), 0u);
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_in_ucast_pkts), 1u) << "another group";
  EXPECT_EQ(vport_packets(s::query_vport_counter_out::received_eth_unicast), 1u);
}

TEST_F(EthernetPort, ClrOfGroup63ResetsAllOnSetAlone) {
  EXPECT_TRUE(receives(make_frame({})));
  const auto clear_all = [&](bool read, bool clear) {
    util::Struct<s::reg_ppcnt> content;
    content.set(s::reg_ppcnt::grp, 63);
    content.set(s::reg_ppcnt::clr, clear);
    return access(s::register_id::PPCNT, read, content).status();
  };
  EXPECT_EQ(clear_all(true, true), Status::BAD_PARAM);
  EXPECT_EQ(clear_all(false, false), Status::BAD_PARAM);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 1u);
  EXPECT_EQ(clear_all(false, true), Status::OK);
  EXPECT_EQ(ieee(s::ppcnt_ieee_802_3::a_frames_received_ok), 0u);
  EXPECT_EQ(rfc_2863(s::ppcnt_rfc_2863::if_in_ucast_pkts), 0u);
}

TEST_F(EthernetPort, PrioritiesAreThoseOfTheTisAndOfTheTag) {
  using In = s::modify_tis_in;
  const auto set_priority = [&](std::uint32_t tisn, unsigned priority) {
    return host.call<s::modify_tis_out, In>(Opcode::MODIFY_TIS, [&](util::MutableView<In> in) {
      in.set(In::tisn, tisn);
      in.sub(In::modify_bitmask).set(s::modify_tis_bitmask::prio, 1);
      in.sub(In::tis_context).set(s::tis_context::prio, priority);
    });
  };
  using State = s::sq_state;
  EXPECT_TRUE(host.modify_sq(sqn, State::RDY, State::RST).ok());
  EXPECT_TRUE(set_priority(1, 5).ok());
  for (const unsigned bit : {3u, 31u, 63u}) {
    const auto refused =
        host.call<s::modify_tis_out, In>(Opcode::MODIFY_TIS, [&](util::MutableView<In> in) {
          in.set(In::tisn, 1);
          util::store_be64(in.sub(In::modify_bitmask).bytes().data(), std::uint64_t{1} << bit | 1);
          in.sub(In::tis_context).set(s::tis_context::prio, 2);
        });
    EXPECT_EQ(refused.status(), Status::BAD_PARAM) << "unknown bit " << bit;
  }
  EXPECT_TRUE(host.modify_sq(sqn, State::RST, State::RDY).ok());
  send(make_frame({.destination = kOther}));
  EXPECT_TRUE(receives(make_frame({.vlan_tci = 3 << 13 | 7})));
  EXPECT_TRUE(receives(make_frame({})));
  const auto frames = [&](auto field, unsigned priority) {
    return ppcnt<s::ppcnt_per_priority>(s::ppcnt_group::PER_PRIORITY, field, priority);
  };
  using C = s::ppcnt_per_priority;
  EXPECT_EQ(frames(C::tx_frames, 5), 1u);
  EXPECT_EQ(frames(C::tx_frames, 0), 0u);
  EXPECT_EQ(frames(C::rx_frames, 3), 1u);
  EXPECT_EQ(frames(C::rx_frames, 0), 1u);
  util::Struct<s::reg_ppcnt> content;
  content.set(s::reg_ppcnt::grp, static_cast<std::uint32_t>(s::ppcnt_group::PER_PRIORITY));
  content.set(s::reg_ppcnt::prio_tc, 8);
  EXPECT_EQ(access(s::register_id::PPCNT, true, content).status(), Status::BAD_INDEX);
  content.set(s::reg_ppcnt::grp, static_cast<std::uint32_t>(s::ppcnt_group::PER_TRAFFIC_CLASS));
  EXPECT_EQ(access(s::register_id::PPCNT, true, content).status(), Status::BAD_INDEX);
}

/// Every group that counts frames follows the traffic. The other groups exist in the document, and
/// read as 0.
TEST_F(EthernetPort, EveryGroupOfCountersFollowsTheTraffic) {
  const auto bytes_of_group = [&](s::ppcnt_group group) {
    util::Struct<s::reg_ppcnt> content;
    content.set(s::reg_ppcnt::grp, static_cast<std::uint32_t>(group));
    EXPECT_TRUE(access(s::register_id::PPCNT, true, content).ok());
    const auto set = util::View<s::reg_ppcnt>(content).get(s::reg_ppcnt::counter_set);
    return Bytes(set.begin(), set.end());
  };
  using Group = s::ppcnt_group;
  constexpr std::array kMoving{Group::IEEE_802_3,    Group::RFC_2863,     Group::RFC_2819,
                               Group::RFC_3635,      Group::PER_PRIORITY, Group::INFINIBAND_PORT,
                               Group::PHYSICAL_LAYER};
  for (const auto group : kMoving) {
    const auto bytes = bytes_of_group(group);
    EXPECT_EQ(bytes, Bytes(bytes.size())) << static_cast<int>(group) << " before";
  }
  send(make_frame({.destination = kOther}));
  EXPECT_FALSE(receives(make_frame({.payload = 3000})));
  host.port.up = false;
  for (int i = 0; i < 20; ++i) host.run_later();
  for (const auto group : kMoving) {
    const auto bytes = bytes_of_group(group);
    EXPECT_NE(bytes, Bytes(bytes.size())) << static_cast<int>(group) << " after";
  }
  const auto physical = bytes_of_group(Group::PHYSICAL_LAYER);
  EXPECT_EQ(util::View<s::ppcnt_phys_layer>(physical).get(s::ppcnt_phys_layer::link_down_events),
            1u)
      << "its time since the last clear moves by itself";
  const auto depth = bytes_of_group(Group::PER_TRAFFIC_CLASS);
  EXPECT_EQ(depth, Bytes(depth.size())) << "the queue is empty when a command looks";
}

}  // namespace
}  // namespace softhca::connectx::test

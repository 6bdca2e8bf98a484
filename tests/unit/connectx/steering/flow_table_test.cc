// Flow tables and a packet's path through them (PRM 7.11), with the tables that drivers make.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "connectx/port/vport.h"
#include "connectx/steering/steering_host.h"

namespace softhca::connectx::test {
namespace {

/// The tables that mlx5_core makes for a netdev: anchor, TTC, L2, VLAN and the empty TC miss table.
class NetdevSteering : public EthernetSteering {
 protected:
  NetdevSteering() {
    anchor = host.create_table(14, 0);
    host.set_root(anchor);
    make_ttc();
    host.set_root(ttc);
    make_l2();
    host.set_root(l2);
    make_vlan();
    host.set_root(vlan);
    tc_miss = host.create_table(2, 0, vlan);
    host.set_root(tc_miss);
  }

  void make_ttc() {
    ttc = host.create_table(6, 7, anchor);
    const auto mask = both(field(Outer::ip_version, 0xF), field(Outer::ip_protocol, 0xFF));
    const auto by_protocol = host.create_group(ttc, 0, 13, mask);
    const auto by_version = host.create_group(ttc, 14, 15, field(Outer::ip_version, 0xF));
    const auto any = host.create_group(ttc, 16, 16);
    // TIR 0: TCP over IPv4, 1: UDP over IPv4, 2: other IPv4, 3: everything else.
    const auto rule = [](unsigned version, unsigned protocol) {
      return both(field(Outer::ip_version, version), field(Outer::ip_protocol, protocol));
    };
    expect_set(host.set_flow(ttc, by_protocol, 0, {tir(0)}, rule(4, 6)));
    expect_set(host.set_flow(ttc, by_protocol, 1, {tir(1)}, rule(4, 17)));
    expect_set(host.set_flow(ttc, by_version, 14, {tir(2)}, field(Outer::ip_version, 4)));
    expect_set(host.set_flow(ttc, any, 16, {tir(3)}));
  }
  void make_l2() {
    l2 = host.create_table(5, 16, anchor);
    exact = host.create_group(l2, 0, 0x7FFF, dmac(kBroadcast));
    multicast = host.create_group(l2, 0x8000, 0x8000, dmac(0x010000000000));
    host.create_group(l2, 0x8001, 0x8001);  // trap
    expect_set(host.set_flow(l2, exact, 0, {table(ttc)}, dmac(kOwnMac)));
    expect_set(host.set_flow(l2, exact, 1, {table(ttc)}, dmac(kBroadcast)));
  }
  void make_vlan() {
    vlan = host.create_table(4, 16, anchor);
    c_vid = host.create_group(vlan, 0, 4095,
                              both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 0xFFF)));
    host.create_group(vlan, 4096, 8191,
                      both(field(Outer::svlan_tag, 1), field(Outer::first_vid, 0xFFF)));
    any_c = host.create_group(vlan, 8192, 8193, field(Outer::cvlan_tag, 1));
    host.create_group(vlan, 8194, 8194, field(Outer::svlan_tag, 1));
    host.create_group(vlan, 8195, 8195);  // trap
    expect_set(host.set_flow(vlan, any_c, 8192, {table(l2)}, field(Outer::cvlan_tag, 0)));
  }

  std::uint32_t anchor = 0, ttc = 0, l2 = 0, vlan = 0, tc_miss = 0;
  std::uint32_t exact = 0, multicast = 0, c_vid = 0, any_c = 0;
};

TEST_F(NetdevSteering, PacketsReachTheTirOfTheirTrafficType) {
  EXPECT_EQ(where({}), 1u);
  EXPECT_EQ(where({.udp = true}), 2u);
  EXPECT_EQ(where({.ipv6 = true}), 8u);
  auto icmp = make_frame({.udp = true});
  icmp[14 + 9] = std::byte{1};
  EXPECT_EQ(where_bytes(icmp), 4u);
  EXPECT_EQ(where({.destination = kBroadcast, .udp = true}), 2u);
}

TEST_F(NetdevSteering, PacketsThatMatchNoFlowAreDropped) {
  EXPECT_EQ(where({.destination = 0x020000000099}), 0u);
  EXPECT_EQ(where({.destination = 0x01005E000001}), 0u);
  EXPECT_EQ(host.device.driver().vport().counters().all_received_discards(), 2u);
}

TEST_F(NetdevSteering, AllMulticastIsOneFlowOnTheMulticastBit) {
  expect_set(host.set_flow(l2, multicast, 0x8000, {table(ttc)}, dmac(0x010000000000)));
  EXPECT_EQ(where({.destination = 0x01005E000001}), 1u);
  EXPECT_EQ(where({.destination = 0x333300000001, .ipv6 = true}), 8u);
  EXPECT_EQ(where({.destination = 0x020000000099}), 0u);
}

TEST_F(NetdevSteering, TaggedPacketsNeedAFlowForTheirVlan) {
  EXPECT_EQ(where({.vlan_tci = 100}), 0u);
  expect_set(host.set_flow(vlan, c_vid, 100, {table(l2)},
                           both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 100))));
  EXPECT_EQ(where({.vlan_tci = 100}), 1u);
  EXPECT_EQ(where({.vlan_tci = 0xE064}), 1u) << "whatever its priority";
  EXPECT_EQ(where({.vlan_tci = 101}), 0u);
  // "any VLAN", as in promiscuous mode.
  expect_set(host.set_flow(vlan, any_c, 8193, {table(l2)}, field(Outer::cvlan_tag, 1)));
  EXPECT_EQ(where({.vlan_tci = 101}), 1u);
}

TEST_F(NetdevSteering, PromiscuousTableIsPutInByItsPredecessorsMissLink) {
  const auto promiscuous = host.create_table(3, 0, vlan);
  const auto group = host.create_group(promiscuous, 0, 0);
  expect_set(host.set_flow(promiscuous, group, 0, {table(ttc)}));
  const auto link = [&](std::uint32_t next) {
    using In = modify_flow_table_in;
    const auto answer = host.call<modify_flow_table_out, In>(
        Opcode::MODIFY_FLOW_TABLE, [&](util::MutableView<In> in) {
          in.set(In::table_id, tc_miss);
          in.set(In::modify_field_select, 1);
          const auto context = in.sub(In::flow_table_context);
          context.set(flow_table_context::table_miss_action, 1);
          context.set(flow_table_context::table_miss_id, next);
        });
    EXPECT_TRUE(answer.ok()) << answer.reason();
  };
  link(promiscuous);
  EXPECT_EQ(where({.destination = 0x020000000099}), 1u);
  link(vlan);
  EXPECT_EQ(where({.destination = 0x020000000099}), 0u);
}

TEST_F(NetdevSteering, RootGoesWithItsTable) {
  const auto destroy = [&](std::uint32_t id) {
    using In = destroy_flow_table_in;
    return host.call<destroy_flow_table_out, In>(
        Opcode::DESTROY_FLOW_TABLE, [&](util::MutableView<In> in) { in.set(In::table_id, id); });
  };
  EXPECT_TRUE(destroy(tc_miss).ok());
  EXPECT_EQ(where({}), 0u);
  host.set_root(vlan);
  EXPECT_EQ(where({}), 1u);
  EXPECT_EQ(destroy(vlan).status(), Status::BAD_RES_STATE) << "it has groups";
}

// Lookup -----------------------------------------------------------------------------------------

TEST_F(EthernetSteering, FirstMatchingEntryDefinesTheActions) {
  const auto id = host.create_table(1, 4);
  const auto fine = host.create_group(id, 0, 7, dmac(kBroadcast));
  const auto coarse = host.create_group(id, 8, 8);
  host.set_root(id);
  expect_set(host.set_flow(id, coarse, 8, {tir(2)}));
  expect_set(host.set_flow(id, fine, 5, {tir(1)}, dmac(kOwnMac)));
  EXPECT_EQ(where({}), 2u);
  expect_set(host.set_flow(id, fine, 3, {tir(0)}, dmac(kOwnMac)));
  EXPECT_EQ(where({}), 1u);
  EXPECT_EQ(where({.destination = 0x020000000099}), 4u);
}

TEST_F(EthernetSteering, GroupsAreSearchedInTheOrderOfTheirFlowsNotOfTheirAge) {
  const auto id = host.create_table(1, 4);
  const auto coarse = host.create_group(id, 8, 8);
  const auto fine = host.create_group(id, 0, 7, dmac(kBroadcast));
  host.set_root(id);
  expect_set(host.set_flow(id, coarse, 8, {tir(2)}));
  expect_set(host.set_flow(id, fine, 5, {tir(1)}, dmac(kOwnMac)));
  EXPECT_EQ(where({}), 2u);
}

TEST_F(EthernetSteering, PacketsNeverHitInvalidFlows) {
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 0, 15, dmac(kBroadcast));
  host.set_root(id);
  expect_set(host.set_flow(id, group, 3, {tir(0)}, dmac(kOwnMac)));
  expect_set(host.set_flow(id, group, 5, {tir(1)}, dmac(kOwnMac)));
  EXPECT_EQ(where({}), 1u);
  using In = delete_flow_table_entry_in;
  const auto remove = [&](std::uint32_t index) {
    return host.call<delete_flow_table_entry_out, In>(Opcode::DELETE_FLOW_TABLE_ENTRY,
                                                      [&](util::MutableView<In> in) {
                                                        in.set(In::table_id, id);
                                                        in.set(In::flow_index, index);
                                                      });
  };
  EXPECT_TRUE(remove(3).ok());
  EXPECT_EQ(where({}), 2u);
  EXPECT_TRUE(remove(5).ok());
  EXPECT_EQ(where({}), 0u);
  EXPECT_EQ(remove(5).status(), Status::BAD_RES_STATE);
}

TEST_F(EthernetSteering, FlowMayBeSetAgainWithoutDeletion) {
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 0, 15, dmac(kBroadcast));
  host.set_root(id);
  expect_set(host.set_flow(id, group, 3, {tir(0)}, dmac(0x020000000055)));
  expect_set(host.set_flow(id, group, 3, {tir(1)}, dmac(kOwnMac)));
  EXPECT_EQ(where({}), 2u);
  EXPECT_EQ(where({.destination = 0x020000000055}), 0u);
}

TEST_F(EthernetSteering, ModifiedFlowKeepsItsMatch) {
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 0, 15, dmac(kBroadcast));
  host.set_root(id);
  expect_set(host.set_flow(id, group, 3, {tir(0)}, dmac(kOwnMac), 7));
  using In = set_flow_table_entry_in;
  Bytes list(8);
  util::store_be32(list.data(), 2u << 24 | tirns[2]);
  const auto modify = [&](std::uint32_t index) {
    return host.call<set_flow_table_entry_out, In>(
        Opcode::SET_FLOW_TABLE_ENTRY,
        [&](util::MutableView<In> in) {
          in.set(In::table_id, id);
          in.set(In::flow_index, index);
          in.set(In::modify_enable_mask, 4);  // the destination list
          in.sub(In::flow_context).set(flow_context::destination_list_size, 1);
        },
        list, 1);
  };
  expect_set(modify(3));
  EXPECT_EQ(where({}), 4u);
  EXPECT_EQ(last_tag(), 7u);
  EXPECT_EQ(modify(4).status(), Status::BAD_RES_STATE);
}

TEST_F(EthernetSteering, DropEndsTheWayOfAPacket) {
  const auto next = host.create_table(2, 0);
  const auto any = host.create_group(next, 0, 0);
  expect_set(host.set_flow(next, any, 0, {tir(0)}));
  const auto id = host.create_table(1, 4, next);
  const auto group = host.create_group(id, 0, 15, dmac(kBroadcast));
  expect_set(host.set_flow(id, group, 0, {}, dmac(0x020000000066)));
  host.set_root(id);
  EXPECT_EQ(where({.destination = 0x020000000066}), 0u);
  EXPECT_EQ(where({}), 1u);
}

TEST_F(EthernetSteering, CqeReflectsTheLastTagOnTheWay) {
  const auto last = host.create_table(3, 0);
  const auto middle = host.create_table(2, 0);
  const auto first = host.create_table(1, 0);
  host.set_root(first);
  const auto in_last = host.create_group(last, 0, 0);
  const auto in_middle = host.create_group(middle, 0, 0);
  const auto in_first = host.create_group(first, 0, 0);
  expect_set(host.set_flow(last, in_last, 0, {tir(0)}));
  expect_set(host.set_flow(middle, in_middle, 0, {table(last)}, {}, 0xABCDEF));
  expect_set(host.set_flow(first, in_first, 0, {table(middle)}, {}, 0x111));
  where({});
  EXPECT_EQ(last_tag(), 0xABCDEFu);
}

TEST_F(EthernetSteering, PacketIsProcessedAtEachOfSeveralDestinations) {
  const auto next = host.create_table(64, 0);
  const auto any = host.create_group(next, 0, 0);
  expect_set(host.set_flow(next, any, 0, {tir(3)}));
  const auto id = host.create_table(1, 0);
  const auto group = host.create_group(id, 0, 0);
  host.set_root(id);
  expect_set(host.set_flow(id, group, 0, {tir(0), tir(2), table(next)}));
  EXPECT_EQ(where({}), 0b1101u);
}

TEST_F(EthernetSteering, FlowOfFiveTuple) {
  const auto id = host.create_table(1, 16);
  const auto set = [](std::uint32_t ip, std::uint32_t port) {
    return [=](Param param) {
      util::store_be32(outer(param).sub(Outer::dst_ipv4_dst_ipv6).data() + 12, ip);
      outer(param).set(Outer::tcp_dport, port);
      outer(param).set(Outer::ip_protocol, port == 0xFFFF ? 0xFF : 6);
    };
  };
  const auto group = host.create_group(id, 0, 0xFFFE, set(~0u, 0xFFFF));
  host.set_root(id);
  for (std::uint32_t i = 0; i < 20000; ++i) {
    expect_set(host.set_flow(id, group, i, {tir(i % 4)}, set(0x0A000000 + i, i % 1000)));
  }
  for (std::uint32_t i = 17; i < 20000; i += 1111) {
    const FrameSpec frame{.destination_port = static_cast<std::uint16_t>(i % 1000),
                          .destination_ip = 0x0A000000 + i};
    EXPECT_EQ(where(frame), 1u << i % 4);
    auto udp = frame;
    udp.udp = true;
    EXPECT_EQ(where(udp), 0u);
  }
}

TEST_F(EthernetSteering, SourceAndDestinationPortsOfUdpAreTwoFields) {
  const auto id = host.create_table(1, 4);
  const auto by_source = host.create_group(id, 0, 0, field(Outer::udp_sport, 0xFFFF));
  const auto by_destination = host.create_group(id, 1, 1, field(Outer::udp_dport, 0xFFFF));
  host.set_root(id);
  expect_set(host.set_flow(id, by_source, 0, {tir(0)}, field(Outer::udp_sport, 1000)));
  expect_set(host.set_flow(id, by_destination, 1, {tir(1)}, field(Outer::udp_dport, 1000)));
  EXPECT_EQ(where({.udp = true, .source_port = 1000, .destination_port = 7}), 1u);
  EXPECT_EQ(where({.udp = true, .source_port = 7, .destination_port = 1000}), 2u);
  EXPECT_EQ(where({.source_port = 1000, .destination_port = 7}), 0u) << "TCP has other ports";
}

// Commands ---------------------------------------------------------------------------------------

TEST_F(EthernetSteering, LevelIsAnOrderAndMayBeAnyEightBitValue) {
  const auto id = host.create_table(255, 16);
  EXPECT_NE(id, 0u);
  const auto lower = host.create_table(254, 0, id);
  const auto group = host.create_group(lower, 0, 0);
  expect_set(host.set_flow(lower, group, 0, {table(id)}));
  const auto back = host.create_group(id, 0, 0);
  // "a Flow in a Flow table of a certain level may only point to a Flow Table of a higher level".
  EXPECT_EQ(host.set_flow(id, back, 0, {table(lower)}).status(), Status::BAD_PARAM);
  EXPECT_EQ(host.set_flow(id, back, 0, {table(id)}).status(), Status::BAD_PARAM);
}

TEST_F(EthernetSteering, BadTablesAreRefused) {
  using In = create_flow_table_in;
  const auto create = [&](auto fill) {
    return host
        .call<create_flow_table_out, In>(Opcode::CREATE_FLOW_TABLE,
                                         [&](util::MutableView<In> in) { fill(in); })
        .status();
  };
  const auto context = [](util::MutableView<In> in) { return in.sub(In::flow_table_context); };
  EXPECT_EQ(create([](auto in) { in.set(In::table_type, 2); }), Status::BAD_PARAM);
  EXPECT_EQ(create([](auto in) { in.set(In::other_vport, 1); }), Status::BAD_PARAM);
  EXPECT_EQ(create([&](auto in) { context(in).set(flow_table_context::log_size, 23); }),
            Status::EXCEED_LIM);
  EXPECT_EQ(create([&](auto in) { context(in).set(flow_table_context::decap_en, 1); }),
            Status::BAD_PARAM);
  EXPECT_EQ(create([&](auto in) {
              context(in).set(flow_table_context::table_miss_action, 1);
              context(in).set(flow_table_context::table_miss_id, 99);
            }),
            Status::BAD_RESOURCE);
  EXPECT_EQ(create([&](auto in) { context(in).set(flow_table_context::table_miss_action, 7); }),
            Status::BAD_PARAM);
}

TEST_F(EthernetSteering, NumberOfTablesIsLimited) {
  using In = create_flow_table_in;
  Status status = Status::OK;
  unsigned made = 0;
  while (status == Status::OK && made <= Limits::count(Limits{}.log_max_ft_num)) {
    status =
        host.call<create_flow_table_out, In>(
                Opcode::CREATE_FLOW_TABLE,
                [](auto in) { in.sub(In::flow_table_context).set(flow_table_context::level, 1); })
            .status();
    ++made;
  }
  EXPECT_EQ(status, Status::NO_RESOURCES);
}

TEST_F(EthernetSteering, BadGroupsAreRefused) {
  using In = create_flow_group_in;
  const auto id = host.create_table(1, 4);
  host.create_group(id, 4, 7);
  const auto create = [&](std::uint32_t first, std::uint32_t last, auto fill) {
    return host
        .call<create_flow_group_out, In>(Opcode::CREATE_FLOW_GROUP,
                                         [&](util::MutableView<In> in) {
                                           in.set(In::table_id, id);
                                           in.set(In::start_flow_index, first);
                                           in.set(In::end_flow_index, last);
                                           fill(in);
                                         })
        .status();
  };
  const auto nothing = [](auto) {};
  EXPECT_EQ(create(0, 16, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(3, 2, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(0, 4, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(7, 9, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(5, 6, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(0, 0xFFFFFFFF, nothing), Status::BAD_PARAM);
  EXPECT_EQ(create(8, 9, [](auto in) { in.set(In::table_id, 77); }), Status::BAD_RESOURCE);
  EXPECT_EQ(create(8, 9, [](auto in) { in.set(In::match_criteria_enable, 4); }), Status::BAD_PARAM);
  EXPECT_EQ(create(8, 9,
                   [](auto in) {
                     in.set(In::match_criteria_enable, 2);
                     in.sub(In::match_criteria)
                         .sub(fte_match_param::misc_parameters)
                         .set(fte_match_set_misc::gre_key, 1);
                   }),
            Status::BAD_PARAM);
  // Criteria that are not enabled may hold stale bytes.
  EXPECT_EQ(create(8, 9,
                   [](auto in) {
                     in.sub(In::match_criteria)
                         .sub(fte_match_param::misc_parameters)
                         .set(fte_match_set_misc::gre_key, 1);
                   }),
            Status::OK);
}

TEST_F(EthernetSteering, BadFlowsAreRefused) {
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 4, 7);
  EXPECT_EQ(host.set_flow(99, group, 4, {tir(0)}).status(), Status::BAD_RESOURCE);
  EXPECT_EQ(host.set_flow(id, group, 3, {tir(0)}).status(), Status::BAD_INDEX);
  EXPECT_EQ(host.set_flow(id, group + 1, 4, {tir(0)}).status(), Status::BAD_INDEX);
  EXPECT_EQ(host.set_flow(id, group, 4, {{destination_type::TIR, 999}}).status(),
            Status::BAD_RESOURCE);
  EXPECT_EQ(host.set_flow(id, group, 4, {table(999)}).status(), Status::BAD_RESOURCE);
  EXPECT_EQ(host.set_flow(id, group, 4, {{destination_type::VPORT, 0}}).status(),
            Status::BAD_PARAM);
  const std::vector<EthernetHost::Destination> many(Limits::count(Limits{}.log_max_destination) + 1,
                                                    tir(0));
  EXPECT_EQ(host.set_flow(id, group, 4, many).status(), Status::EXCEED_LIM);
  using In = set_flow_table_entry_in;
  const auto set = [&](std::uint32_t action, std::uint32_t count) {
    return host
        .call<set_flow_table_entry_out, In>(Opcode::SET_FLOW_TABLE_ENTRY,
                                            [&](util::MutableView<In> in) {
                                              in.set(In::table_id, id);
                                              in.set(In::flow_index, 4);
                                              const auto context = in.sub(In::flow_context);
                                              context.set(flow_context::group_id, group);
                                              context.set(flow_context::action, action);
                                              context.set(flow_context::destination_list_size,
                                                          count);
                                            })
        .status();
  };
  EXPECT_EQ(set(4, 0), Status::BAD_PARAM) << "forward to nowhere";
  EXPECT_EQ(set(4, 1), Status::BAD_INPUT_LEN) << "the list is not there";
  EXPECT_EQ(set(6, 0), Status::BAD_PARAM) << "drop and forward";
  EXPECT_EQ(set(0, 0), Status::BAD_PARAM) << "no action";
  EXPECT_EQ(set(2 | 8, 0), Status::BAD_PARAM) << "count without counters";
  EXPECT_EQ(set(2 | 16, 0), Status::BAD_PARAM) << "reformat";
  EXPECT_EQ(set(2, 0), Status::OK);
}

TEST_F(EthernetSteering, TirStaysAsLongAsAFlowForwardsToIt) {
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 0, 7);
  expect_set(host.set_flow(id, group, 0, {tir(1)}));
  const auto destroy = [&] {
    return host
        .call<destroy_tir_out, destroy_tir_in>(
            Opcode::DESTROY_TIR, [&](auto in) { in.set(destroy_tir_in::tirn, tirns[1]); })
        .status();
  };
  EXPECT_EQ(destroy(), Status::BAD_RES_STATE);
  expect_set(host.set_flow(id, group, 0, {tir(2)}));
  EXPECT_EQ(destroy(), Status::OK);
}

TEST_F(EthernetSteering, QueriesReturnWhatWasSet) {
  const auto anchor = host.create_table(9, 0);
  const auto id = host.create_table(3, 6, anchor);
  const auto group = host.create_group(id, 2, 40, dmac(kBroadcast));
  expect_set(host.set_flow(id, group, 12, {tir(1), tir(2)}, dmac(kOwnMac), 0x77));

  using TableIn = query_flow_table_in;
  const auto table_answer = host.call<query_flow_table_out, TableIn>(
      Opcode::QUERY_FLOW_TABLE,
      [&](util::MutableView<TableIn> in) { in.set(TableIn::table_id, id); });
  const auto context =
      table_answer.as<query_flow_table_out>().get(query_flow_table_out::flow_table_context);
  EXPECT_EQ(context.get(flow_table_context::level), 3u);
  EXPECT_EQ(context.get(flow_table_context::log_size), 6u);
  EXPECT_EQ(context.get(flow_table_context::table_miss_id), anchor);

  using GroupIn = query_flow_group_in;
  const auto group_answer = host.call<query_flow_group_out, GroupIn>(
      Opcode::QUERY_FLOW_GROUP, [&](util::MutableView<GroupIn> in) {
        in.set(GroupIn::table_id, id);
        in.set(GroupIn::group_id, group);
      });
  const auto group_out = group_answer.as<query_flow_group_out>();
  EXPECT_EQ(group_out.get(query_flow_group_out::start_flow_index), 2u);
  EXPECT_EQ(group_out.get(query_flow_group_out::end_flow_index), 40u);
  EXPECT_EQ(group_out.get(query_flow_group_out::match_criteria_enable), 1u);

  using FlowIn = query_flow_table_entry_in;
  const auto flow_answer = host.call<query_flow_table_entry_out, FlowIn>(
      Opcode::QUERY_FLOW_TABLE_ENTRY,
      [&](util::MutableView<FlowIn> in) {
        in.set(FlowIn::table_id, id);
        in.set(FlowIn::flow_index, 12);
      },
      {}, 0, 16);
  ASSERT_TRUE(flow_answer.ok());
  const auto flow =
      flow_answer.as<query_flow_table_entry_out>().get(query_flow_table_entry_out::flow_context);
  EXPECT_EQ(flow.get(flow_context::group_id), group);
  EXPECT_EQ(flow.get(flow_context::flow_tag), 0x77u);
  EXPECT_EQ(flow.get(flow_context::destination_list_size), 2u);
  const auto* list = flow_answer.out.data() + query_flow_table_entry_out::kSize;
  EXPECT_EQ(util::load_be32(list), 2u << 24 | tirns[1]);
  EXPECT_EQ(util::load_be32(list + 8), 2u << 24 | tirns[2]);
}

}  // namespace
}  // namespace softhca::connectx::test

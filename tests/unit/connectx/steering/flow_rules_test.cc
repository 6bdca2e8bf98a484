// Tag matching of flows, objects in use, and the cost bound of a lookup (PRM 7.11).
#include <gtest/gtest.h>

#include <array>

#include "connectx/base/limits.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/port/network_port.h"
#include "connectx/steering/steering_host.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

// Tags (PRM 7.11.3.10.1) ------------------------------------------------------------------------

/// Untagged, priority-tagged and VLAN-tagged packets, and which of them a flow matches.
class EthernetSteeringTags : public EthernetSteering {
 protected:
  EthernetSteeringTags() : id(host.create_table(1, 4)) { host.set_root(id); }

  template <class Mask, class Value>
  void catch_with(Mask mask, Value value) {
    expect_set(host.set_flow(id, host.create_group(id, 0, 3, mask), 0, {tir(0)}, value));
  }
  bool untagged() { return where({}) == 1; }
  bool priority_tagged() { return where({.vlan_tci = 3 << 13}) == 1; }
  bool tagged() { return where({.vlan_tci = 100}) == 1; }
  bool service_priority_tagged() {
    auto frame = make_frame({.vlan_tci = 0});
    util::store_be16(frame.data() + 12, 0x88A8);
    return where_bytes(frame) == 1;
  }

  std::uint32_t id;
};

TEST_F(EthernetSteeringTags, TagAndVidOfZeroCatchUntaggedAndPriorityTaggedPackets) {
  catch_with(both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 0xFFF)), [](Param) {});
  EXPECT_TRUE(untagged());
  EXPECT_TRUE(priority_tagged());
  EXPECT_FALSE(tagged());
}

TEST_F(EthernetSteeringTags, TagOfZeroAloneCatchesUntaggedPackets) {
  catch_with(field(Outer::cvlan_tag, 1), [](Param) {});
  EXPECT_TRUE(untagged());
  EXPECT_FALSE(priority_tagged());
  EXPECT_FALSE(tagged());
}

TEST_F(EthernetSteeringTags, TagOfOneAndVidOfZeroCatchPriorityTaggedPackets) {
  catch_with(both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 0xFFF)),
             field(Outer::cvlan_tag, 1));
  EXPECT_FALSE(untagged());
  EXPECT_TRUE(priority_tagged());
  EXPECT_FALSE(tagged());
}

TEST_F(EthernetSteeringTags, ServiceTagsAreTagsToo) {
  catch_with(both(field(Outer::svlan_tag, 1), field(Outer::first_vid, 0xFFF)), [](Param) {});
  EXPECT_TRUE(untagged());
  EXPECT_TRUE(service_priority_tagged());
  EXPECT_FALSE(tagged());
}

TEST_F(EthernetSteeringTags, TheFirstOfTwoFlowsForAPriorityTaggedPacketDecides) {
  const auto mask = both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 0xFFF));
  const auto group = host.create_group(id, 0, 3, mask);
  expect_set(host.set_flow(id, group, 2, {tir(1)}, field(Outer::cvlan_tag, 1)));
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 2u);
  expect_set(host.set_flow(id, group, 3, {tir(0)}));  // matches both kinds, but comes later
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 2u);
  expect_set(host.set_flow(id, group, 1, {tir(2)}));  // matches both kinds, and comes earlier
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 4u);
  EXPECT_EQ(where({}), 4u);
}

// Objects in use ---------------------------------------------------------------------------------

class EthernetSteeringUse : public EthernetSteering {
 protected:
  Status destroy(std::uint32_t id) {
    using In = destroy_flow_table_in;
    return host
        .call<destroy_flow_table_out, In>(
            Opcode::DESTROY_FLOW_TABLE, [&](util::MutableView<In> in) { in.set(In::table_id, id); })
        .status();
  }
  void set_miss(std::uint32_t id, std::uint32_t next) {
    using In = modify_flow_table_in;
    const auto answer = host.call<modify_flow_table_out, In>(
        Opcode::MODIFY_FLOW_TABLE, [&](util::MutableView<In> in) {
          in.set(In::table_id, id);
          in.set(In::modify_field_select, 1);
          const auto context = in.sub(In::flow_table_context);
          context.set(flow_table_context::table_miss_action, next != 0);
          context.set(flow_table_context::table_miss_id, next);
        });
    EXPECT_TRUE(answer.ok()) << answer.reason();
  }
};

// The number of a destroyed table is soon reused. The level and flows of the new table would be
// unchecked.
TEST_F(EthernetSteeringUse, TableStaysAsLongAsAFlowLeadsToIt) {
  const auto next = host.create_table(2, 0);
  const auto id = host.create_table(1, 4);
  const auto group = host.create_group(id, 0, 7);
  expect_set(host.set_flow(id, group, 0, {table(next)}));
  EXPECT_EQ(destroy(next), Status::BAD_RES_STATE);
  expect_set(host.set_flow(id, group, 0, {tir(0)}));
  EXPECT_EQ(destroy(next), Status::OK);
}

TEST_F(EthernetSteeringUse, TableStaysAsLongAsAMissLeadsToIt) {
  const auto last = host.create_table(9, 0);
  const auto next = host.create_table(2, 0, last);
  const auto id = host.create_table(1, 4, next);
  EXPECT_EQ(destroy(next), Status::BAD_RES_STATE);
  set_miss(id, last);
  EXPECT_EQ(destroy(next), Status::OK) << "and its own miss is none any more";
  EXPECT_EQ(destroy(last), Status::BAD_RES_STATE);
  EXPECT_EQ(destroy(id), Status::OK);
  EXPECT_EQ(destroy(last), Status::OK);
}

// Refused commands
// ---------------------------------------------------------------------------------

class EthernetSteeringRefusals : public EthernetSteering {
 protected:
  using Context = flow_table_context;
  Reply try_table(std::uint32_t level) {
    using In = create_flow_table_in;
    return host.call<create_flow_table_out, In>(Opcode::CREATE_FLOW_TABLE, [&](auto in) {
      in.sub(In::flow_table_context).set(Context::level, level);
    });
  }
  Reply query_flow(std::uint32_t id) {
    using In = query_flow_table_entry_in;
    return host.call<query_flow_table_entry_out, In>(Opcode::QUERY_FLOW_TABLE_ENTRY,
                                                     [&](auto in) { in.set(In::table_id, id); });
  }
  template <class Out, class In>
  command_status of_another_vport(Opcode opcode) {
    return host.call<Out, In>(opcode, [](auto in) { in.set(In::other_vport, 1); }).status();
  }
};

// PRM 7.11.3.2: "Only a single Flow Table with level 0 is allowed."
TEST_F(EthernetSteeringRefusals, TheDefaultRootStaysTheOneThatItIs) {
  const auto root = host.create_table(0, 0);
  expect_set(host.set_flow(root, host.create_group(root, 0, 0), 0, {tir(0)}));
  EXPECT_EQ(try_table(0).status(), command_status::BAD_PARAM);
  EXPECT_TRUE(try_table(1).ok());
  host.arrive(make_frame({}));
  EXPECT_EQ(host.received(rqns[0]), 1u);
}

// PRM 12.14.4: op_mod 1.
TEST_F(EthernetSteeringRefusals, AResetMakesTheTableOfLevel0TheRootAgain) {
  const auto first = host.create_table(0, 0);
  expect_set(host.set_flow(first, host.create_group(first, 0, 0), 0, {tir(0)}));
  const auto second = host.create_table(1, 0);
  expect_set(host.set_flow(second, host.create_group(second, 0, 0), 0, {tir(1)}));
  host.set_root(second);
  const auto set_root = [&](std::uint16_t op_mod) {
    using In = set_flow_table_root_in;
    return host
        .call<set_flow_table_root_out, In>(
            Opcode::SET_FLOW_TABLE_ROOT, [](auto) {}, {}, op_mod)
        .status();
  };
  EXPECT_EQ(set_root(2), command_status::BAD_OP);
  host.arrive(make_frame({}));
  EXPECT_EQ(host.received(rqns[1]), 1u);
  EXPECT_EQ(set_root(1), command_status::OK);
  host.arrive(make_frame({}));
  EXPECT_EQ(host.received(rqns[0]), 1u);
  EXPECT_EQ(host.received(rqns[1]), 1u);
}

// PRM 7.11.3.3: "The Flow table containing this Flow must have a level lower than 64. The Flow
// tables pointed by this Flow [...] must have a level equal or higher than 64", but the last.
TEST_F(EthernetSteeringRefusals, SeveralPathsBeginBelowLevel64AndGoOnAboveIt) {
  const auto low = host.create_table(63, 0);
  const auto lower = host.create_table(62, 0);
  const auto high = host.create_table(64, 0);
  const auto higher = host.create_table(65, 0);
  const auto from = host.create_table(10, 0);
  const auto group = host.create_group(from, 0, 0);
  const auto set = [&](const std::vector<EthernetHost::Destination>& to) {
    return host.set_flow(from, group, 0, to).status();
  };
  EXPECT_EQ(set({table(low), table(high)}), command_status::BAD_PARAM);
  EXPECT_EQ(set({table(lower), table(low)}), command_status::BAD_PARAM);
  EXPECT_EQ(set({table(high), table(low)}), command_status::OK);
  EXPECT_EQ(set({table(high), table(higher)}), command_status::OK);
  EXPECT_EQ(set({table(low), tir(0), tir(1)}), command_status::OK);
  EXPECT_EQ(set({table(low)}), command_status::OK);
  const auto of_high = host.create_group(high, 0, 0);
  EXPECT_EQ(host.set_flow(high, of_high, 0, {tir(0), tir(1)}).status(), command_status::BAD_PARAM);
  EXPECT_EQ(host.set_flow(high, of_high, 0, {table(higher)}).status(), command_status::OK);
}

TEST_F(EthernetSteeringRefusals, GroupsAndFlowsOfAnotherVportAreNone) {
  EXPECT_EQ(
      (of_another_vport<create_flow_group_out, create_flow_group_in>(Opcode::CREATE_FLOW_GROUP)),
      command_status::BAD_PARAM);
  EXPECT_EQ(
      (of_another_vport<destroy_flow_group_out, destroy_flow_group_in>(Opcode::DESTROY_FLOW_GROUP)),
      command_status::BAD_PARAM);
  EXPECT_EQ((of_another_vport<set_flow_table_entry_out, set_flow_table_entry_in>(
                Opcode::SET_FLOW_TABLE_ENTRY)),
            command_status::BAD_PARAM);
  EXPECT_EQ((of_another_vport<delete_flow_table_entry_out, delete_flow_table_entry_in>(
                Opcode::DELETE_FLOW_TABLE_ENTRY)),
            command_status::BAD_PARAM);
}

TEST_F(EthernetSteeringRefusals, TheRootIsNoTableOfAnotherVport) {
  using In = set_flow_table_root_in;
  const auto id = host.create_table(1, 0);
  const auto set_root = [&](bool of_another) {
    return host
        .call<set_flow_table_root_out, In>(Opcode::SET_FLOW_TABLE_ROOT,
                                           [&](auto in) {
                                             in.set(In::table_id, id);
                                             in.set(In::table_of_other_vport, of_another);
                                           })
        .status();
  };
  EXPECT_EQ(set_root(true), command_status::BAD_PARAM);
  EXPECT_EQ(set_root(false), command_status::OK);
}

TEST_F(EthernetSteeringRefusals, AFlowOfNoTableIsAnUnknownResource) {
  const auto id = host.create_table(1, 0);
  EXPECT_EQ(query_flow(id).status(), command_status::BAD_RES_STATE) << "an invalid flow";
  EXPECT_EQ(query_flow(id + 100).status(), command_status::BAD_RESOURCE);
}

TEST_F(EthernetSteeringRefusals, OnlyKnownPartsOfAFlowAreModified) {
  using In = set_flow_table_entry_in;
  const auto id = host.create_table(1, 0);
  expect_set(host.set_flow(id, host.create_group(id, 0, 0), 0, {tir(0)}));
  const auto modify = [&](std::uint32_t mask) {
    return host
        .call<set_flow_table_entry_out, In>(
            Opcode::SET_FLOW_TABLE_ENTRY,
            [&](auto in) {
              in.set(In::table_id, id);
              in.set(In::modify_enable_mask, mask);
            },
            {}, static_cast<std::uint16_t>(set_flow_table_entry_op_mod::MODIFY))
        .status();
  };
  EXPECT_EQ(modify(1u << static_cast<unsigned>(set_fte_modify_bit::FLOW_TAG)), command_status::OK);
  EXPECT_EQ(modify(0x80), command_status::BAD_PARAM);
}

// Snabb's driver ends its input with the first dword of the last destination.
TEST_F(EthernetSteeringRefusals, TheLastDestinationMayLackItsSecondDword) {
  using In = set_flow_table_entry_in;
  const auto id = host.create_table(1, 0);
  const auto group = host.create_group(id, 0, 0);
  Input<In> in(Opcode::SET_FLOW_TABLE_ENTRY, 0, 2 * dest_format::kSize);
  (*in).set(In::table_id, id);
  const auto context = (*in).sub(In::flow_context);
  context.set(flow_context::group_id, group);
  context.set(flow_context::action, static_cast<std::uint32_t>(flow_action::FWD_DEST));
  context.set(flow_context::destination_list_size, 2);
  for (unsigned i = 0; i != 2; ++i) {
    const util::MutableView<dest_format> entry(in.tail().subspan(i * dest_format::kSize));
    entry.set(dest_format::destination_type, static_cast<std::uint32_t>(destination_type::TIR));
    entry.set(dest_format::destination_id, tirns[i]);
  }
  const auto cut = [&](std::size_t bytes) {
    const auto sent = std::span(in.bytes()).first(in.bytes().size() - bytes);
    return host.execute(sent, set_flow_table_entry_out::kSize).status();
  };
  EXPECT_EQ(cut(8), command_status::BAD_INPUT_LEN) << "a destination is missing";
  EXPECT_EQ(cut(4), command_status::OK);
  host.set_root(id);
  host.arrive(make_frame({}));
  EXPECT_EQ(host.received(rqns[0]), 1u);
  EXPECT_EQ(host.received(rqns[1]), 1u);
}

// Work -------------------------------------------------------------------------------------------

/// Each table points to the next level's table and to TIRs, and has many groups to search.
class EthernetSteeringWork : public EthernetSteering {
 protected:
  static constexpr std::uint32_t kGroups = 140;
  static constexpr std::size_t kCopies = 20;

  EthernetSteeringWork() {
    std::uint32_t next = 0;
    for (std::uint8_t level = 60; level != 30; --level) {
      const auto id = host.create_table(level, 8);
      const auto group = host.create_group(id, 0, 0);
      for (std::uint32_t i = 1; i != kGroups; ++i) host.create_group(id, i, i);
      std::vector<EthernetHost::Destination> to(kCopies, tir(0));
      if (next != 0) to.push_back(table(next));
      expect_set(host.set_flow(id, group, 0, to));
      next = id;
    }
    host.set_root(next);
  }
};

TEST_F(EthernetSteeringWork, NestedMultiPathsEndAfterABoundedNumberOfCopies) {
  host.arrive(make_frame({}));
  // 30 WQEs are posted; the other copies find none.
  EXPECT_EQ(host.received(rqns[0]), 30u);
  const auto discards = host.device.driver().network_port().counters().all_received_discards();
  EXPECT_GT(discards, 0u);
  EXPECT_LE(30 + discards, FlowSteering::kDeliveriesMax);
}

TEST_F(EthernetSteeringWork, WorkForArrivedFramesIsChargedToTheTurn) {
  const auto send_cqn = host.create_cq(8);
  const auto sqn = host.create_sq(send_cqn, 6);
  for (std::uint16_t i = 0; i < 32; ++i) {
    host.write_wqe(sqn, Wqe(wqe_opcode::NOP, sqn, i).finish());
  }
  host.ring_send(sqn);
  const auto completed = [&] {
    unsigned count = 0;
    while (!host.poll(send_cqn).empty()) ++count;
    return count;
  };
  // One frame takes thousands of steps, another a few.
  for (int i = 0; i < 4; ++i) host.arrive(make_frame({}));
  EXPECT_EQ(host.device.run(host.device.now()), host.device.now());
  EXPECT_EQ(completed(), 0u) << "the turn is spent";
  host.run();
  EXPECT_EQ(completed(), 32u);

  for (std::uint16_t i = 32; i < 64; ++i) {
    host.write_wqe(sqn, Wqe(wqe_opcode::NOP, sqn, i).finish());
  }
  const auto plain = host.create_table(1, 0);
  const auto group = host.create_group(plain, 0, 0);
  expect_set(host.set_flow(plain, group, 0, {tir(1)}));
  host.set_root(plain);
  host.ring_send(sqn);
  for (int i = 0; i < 4; ++i) host.arrive(make_frame({}));
  host.device.run(host.device.now());
  EXPECT_EQ(completed(), 32u);
}

TEST_F(EthernetSteeringWork, TheCostOfArrivedFramesIsPaidBeforeTheNextSend) {
  const auto send_cqn = host.create_cq(8);
  const auto sqn = host.create_sq(send_cqn, 6);
  for (int i = 0; i < 4; ++i) host.arrive(make_frame({}));
  const auto now = host.device.now();
  int turns = 1;
  while (host.device.run(now) == now && turns != 1000) ++turns;
  EXPECT_GT(turns, 1);
  host.write_wqe(sqn, Wqe(wqe_opcode::NOP, sqn, 0).finish());
  host.ring_send(sqn);
  host.device.run(now);
  EXPECT_FALSE(host.poll(send_cqn).empty());
}

}  // namespace
}  // namespace softhca::connectx::test

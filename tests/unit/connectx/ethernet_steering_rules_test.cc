// What tags mean to flows, what is in use, and what a lookup may cost (PRM 7.11).
#include <gtest/gtest.h>

#include <array>

#include "connectx/base/limits.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/port/network_port.h"
#include "connectx/steering_host.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

// Tags (PRM 7.11.3.10.1) ------------------------------------------------------------------------

/// What of untagged, priority-tagged and VLAN-tagged packets a flow catches.
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

TEST_F(EthernetSteeringTags, OfTwoFlowsForAPriorityTaggedPacketTheFirstDecides) {
  const auto mask = both(field(Outer::cvlan_tag, 1), field(Outer::first_vid, 0xFFF));
  const auto group = host.create_group(id, 0, 3, mask);
  expect_set(host.set_flow(id, group, 2, {tir(1)}, field(Outer::cvlan_tag, 1)));
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 2u);
  expect_set(host.set_flow(id, group, 3, {tir(0)}));  // both kinds, but behind
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 2u);
  expect_set(host.set_flow(id, group, 1, {tir(2)}));  // both kinds, and before
  EXPECT_EQ(where({.vlan_tci = 3 << 13}), 4u);
  EXPECT_EQ(where({}), 4u);
}

// What is in use ---------------------------------------------------------------------------------

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

// The number of a destroyed table is soon another's, whose level and flows nobody has compared.
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

// What commands take -------------------------------------------------------------------------------

// Snabb's driver ends its input with the first dword of the last destination.
TEST_F(EthernetSteering, TheLastDestinationMayLackItsSecondDword) {
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

/// Each table points to both tables of the next level: 2^30 ways, which the manual forbids.
class EthernetSteeringWork : public EthernetSteering {
 protected:
  EthernetSteeringWork() {
    std::array<std::uint32_t, 2> next{};
    for (std::uint8_t level = 60; level != 30; --level) {
      std::array<std::uint32_t, 2> now{};
      for (auto& id : now) {
        id = host.create_table(level, 0);
        const auto group = host.create_group(id, 0, 0);
        std::vector<EthernetHost::Destination> to{tir(0)};
        if (next[0] != 0) to = {table(next[0]), table(next[1])};
        expect_set(host.set_flow(id, group, 0, to));
      }
      next = now;
    }
    host.set_root(next[0]);
  }
};

TEST_F(EthernetSteeringWork, NestedMultiPathsEndAfterABoundedNumberOfCopies) {
  host.arrive(make_frame({}));
  // 30 WQEs are posted; the other copies find none.
  EXPECT_EQ(host.received(rqns[0]), 30u);
  const auto discards = host.device.network_port().counters().all_received_discards();
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
  // A frame that takes thousands of steps, and one that takes a few.
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

TEST_F(EthernetSteeringWork, WhatFramesHaveCostIsPaidWhileNothingIsSent) {
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

// Flow counters (PRM 7.11.2.8, 12.14.12 to 12.14.14).
#include <gtest/gtest.h>

#include "connectx/base/limits.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/steering/steering_host.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx::test {
namespace {

class FlowCounters : public EthernetSteering {
 protected:
  FlowCounters() : table_id(host.create_table(0, 4)) {}

  std::uint32_t alloc() {
    const auto reply = try_alloc();
    EXPECT_TRUE(reply.ok()) << reply.reason();
    return reply.as<alloc_flow_counter_out>().get(alloc_flow_counter_out::flow_counter_id);
  }
  Reply try_alloc(const EthernetHost::Fill<alloc_flow_counter_in>& fill = [](auto) {}) {
    return host.call<alloc_flow_counter_out, alloc_flow_counter_in>(Opcode::ALLOC_FLOW_COUNTER,
                                                                    fill);
  }
  Status dealloc(std::uint32_t id) {
    using Dealloc = dealloc_flow_counter_in;
    return host
        .call<dealloc_flow_counter_out, Dealloc>(
            Opcode::DEALLOC_FLOW_COUNTER, [&](auto in) { in.set(Dealloc::flow_counter_id, id); })
        .status();
  }
  struct Value {
    std::uint64_t packets, octets;
    friend bool operator==(const Value&, const Value&) = default;
  };
  using In = query_flow_counter_in;
  using Out = query_flow_counter_out;
  Reply query(const EthernetHost::Fill<In>& fill, std::size_t room = 1, std::uint16_t op_mod = 0) {
    return host.call<Out, In>(Opcode::QUERY_FLOW_COUNTER, fill, {}, op_mod,
                              room * Out::flow_statistics_size);
  }
  static Value value_of(const Reply& reply, std::size_t i) {
    const auto list =
        std::span(reply.out).subspan(Out::flow_statistics_offset + i * Out::flow_statistics_size);
    const util::View<traffic_counter> counter(list);
    return {counter.get(traffic_counter::packets), counter.get(traffic_counter::octets)};
  }
  Value value(std::uint32_t id, bool clear = false) {
    const auto reply = query([&](auto in) {
      in.set(In::flow_counter_id, id);
      in.set(In::clear, clear ? 1 : 0);
    });
    EXPECT_TRUE(reply.ok()) << reply.reason();
    return value_of(reply, 0);
  }
  /// SET_FLOW_TABLE_ENTRY of flow 0 with `counters`. It modifies the fields in `mask`.
  Reply modify(flow_action action, std::uint32_t mask, const std::vector<std::uint32_t>& counters) {
    using Set = set_flow_table_entry_in;
    Bytes list(flow_counter_list_entry::kSize * counters.size());
    for (std::size_t i = 0; i < counters.size(); ++i) {
      const auto rest = std::span(list).subspan(i * flow_counter_list_entry::kSize);
      util::MutableView<flow_counter_list_entry>(rest).set(flow_counter_list_entry::flow_counter_id,
                                                           counters[i]);
    }
    return host.call<set_flow_table_entry_out, Set>(
        Opcode::SET_FLOW_TABLE_ENTRY,
        [&](auto in) {
          in.set(Set::table_id, table_id);
          in.set(Set::modify_enable_mask, mask);
          const auto context = in.sub(Set::flow_context);
          context.set(flow_context::action, static_cast<std::uint32_t>(action) |
                                                static_cast<std::uint32_t>(flow_action::COUNT));
          context.set(flow_context::flow_counter_list_size,
                      static_cast<std::uint32_t>(counters.size()));
        },
        list, 1);
  }
  void arrive(std::size_t payload = 46) { host.arrive(make_frame({.payload = payload})); }
  std::size_t size(std::size_t payload = 46) { return make_frame({.payload = payload}).size(); }

  static constexpr auto kAction = 1u << static_cast<unsigned>(set_fte_modify_bit::ACTION);
  static constexpr auto kCounters = 1u << static_cast<unsigned>(set_fte_modify_bit::FLOW_COUNTERS);
  std::uint32_t table_id;
};

TEST_F(FlowCounters, CountPacketsAndBytesOfTheirFlowsAndNoOthers) {
  const auto id = alloc(), other = alloc();
  EXPECT_NE(id, other);
  const auto mask = field(Outer::tcp_dport, 0xFFFF);
  const auto group = host.create_group(table_id, 0, 3, mask);
  host.flow_counters = {id};
  expect_set(host.set_flow(table_id, group, 0, {tir(0)}, field(Outer::tcp_dport, 80)));
  host.flow_counters = {other};
  expect_set(host.set_flow(table_id, group, 1, {tir(1)}, field(Outer::tcp_dport, 81)));
  std::uint64_t octets = 0;
  for (const std::size_t payload : {46u, 100u, 46u, 200u}) {
    const auto frame = make_frame({.destination_port = 80, .payload = payload});
    octets += frame.size();
    host.arrive(frame);
  }
  EXPECT_EQ(value(id), (Value{4, octets}));
  EXPECT_EQ(value(other), (Value{0, 0}));
  EXPECT_EQ(host.received(rqns[0]), 4u);
}

TEST_F(FlowCounters, CountWhatIsDroppedToo) {
  host.flow_counters = {alloc()};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {}));
  arrive();
  EXPECT_EQ(value(host.flow_counters[0]), (Value{1, size()}));
}

TEST_F(FlowCounters, CountAtEachFlowOnTheWay) {
  const auto first = alloc(), second = alloc();
  const auto next = host.create_table(1, 0);
  host.flow_counters = {first, second};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {table(next)}));
  host.flow_counters = {second};
  expect_set(host.set_flow(next, host.create_group(next, 0, 0), 0, {tir(0)}));
  arrive();
  EXPECT_EQ(value(first).packets, 1u);
  EXPECT_EQ(value(second).packets, 2u);
}

TEST_F(FlowCounters, AreClearedAsTheyAreRead) {
  host.flow_counters = {alloc()};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0)}));
  arrive();
  EXPECT_EQ(value(host.flow_counters[0], true).packets, 1u);
  EXPECT_EQ(value(host.flow_counters[0]), (Value{0, 0}));
}

TEST_F(FlowCounters, AreReadSeveralAtOnceFromANumberThatFourDivides) {
  std::vector<std::uint32_t> ids;
  while (ids.empty() || ids.back() < 5) ids.push_back(alloc());
  host.flow_counters = {5};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0)}));
  arrive();
  const auto four = [](auto in) {
    in.set(In::flow_counter_id, 4);
    in.set(In::num_of_counters, 4);
    in.set(In::clear, 1);
  };
  const auto reply = query(four, 4);
  ASSERT_TRUE(reply.ok()) << reply.reason();
  EXPECT_EQ(value_of(reply, 0).packets, 0u);
  EXPECT_EQ(value_of(reply, 1).packets, 1u);
  EXPECT_EQ(value_of(reply, 2).packets, 0u) << "not allocated";
  EXPECT_EQ(value(5).packets, 1u) << "cleared are single ones";
  EXPECT_EQ(query(four, 3).status(), Status::BAD_OUTPUT_LEN);
  EXPECT_EQ(query(
                [](auto in) {
                  in.set(In::flow_counter_id, 5);
                  in.set(In::num_of_counters, 4);
                },
                4)
                .status(),
            Status::BAD_PARAM);
}

TEST_F(FlowCounters, BadQueriesAreRefused) {
  const auto id = alloc();
  EXPECT_EQ(query([&](auto in) { in.set(In::flow_counter_id, id + 1); }).status(),
            Status::BAD_RESOURCE);
  EXPECT_EQ(query([&](auto in) { in.set(In::flow_counter_id, id); }, 0).status(),
            Status::BAD_OUTPUT_LEN);
  EXPECT_EQ(query([&](auto in) { in.set(In::flow_counter_id, id); }, 1, 1).status(),
            Status::BAD_OP);
  EXPECT_EQ(
      try_alloc([](auto in) { in.set(alloc_flow_counter_in::flow_counter_bulk, 1); }).status(),
      Status::BAD_PARAM);
}

TEST_F(FlowCounters, BeginAtZero) {
  const auto id = alloc();
  host.flow_counters = {id};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0)}));
  arrive();
  host.flow_counters = {};
  expect_set(host.set_flow(table_id, 1, 0, {tir(0)}));
  EXPECT_EQ(dealloc(id), Status::OK);
  const auto again = alloc();
  EXPECT_EQ(value(again), (Value{0, 0}));
}

TEST_F(FlowCounters, AreNotFreedWhileAFlowCounts) {
  const auto id = alloc();
  EXPECT_EQ(dealloc(id + 1), Status::BAD_RESOURCE);
  host.flow_counters = {id};
  const auto group = host.create_group(table_id, 0, 0);
  expect_set(host.set_flow(table_id, group, 0, {tir(0)}));
  EXPECT_EQ(dealloc(id), Status::BAD_RES_STATE);
  using Delete = delete_flow_table_entry_in;
  EXPECT_TRUE((
      host.call<delete_flow_table_entry_out, Delete>(
              Opcode::DELETE_FLOW_TABLE_ENTRY, [&](auto in) { in.set(Delete::table_id, table_id); })
          .ok()));
  EXPECT_EQ(dealloc(id), Status::OK);
  EXPECT_EQ(dealloc(id), Status::BAD_RESOURCE);
}

TEST_F(FlowCounters, CountersOfAFlowAreModifiedWithoutItsDestination) {
  const auto first = alloc(), second = alloc();
  host.flow_counters = {first};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0)}, {}, 7));
  arrive();
  expect_set(modify(flow_action::FWD_DEST, kCounters, {second}));
  arrive();
  EXPECT_EQ(last_tag(), 7u) << "the destination stays";
  EXPECT_EQ(value(first).packets, 1u);
  EXPECT_EQ(value(second).packets, 1u);
  EXPECT_EQ(dealloc(first), Status::OK);
  // The counters persist when the action changes.
  expect_set(modify(flow_action::DROP, kAction, {}));
  arrive();
  EXPECT_EQ(value(second).packets, 2u);
  EXPECT_EQ(host.received(rqns[0]), 2u);
}

TEST_F(FlowCounters, BadCountersRefuseTheFlowAndLeaveItAsItWas) {
  const auto id = alloc();
  const auto group = host.create_group(table_id, 0, 0);
  host.flow_counters = {id, id + 1};
  EXPECT_EQ(host.set_flow(table_id, group, 0, {tir(0)}).status(), Status::BAD_RESOURCE);
  host.flow_counters = {};
  expect_set(host.set_flow(table_id, group, 0, {tir(0)}));
  EXPECT_EQ(modify(flow_action::FWD_DEST, kAction, {}).status(), Status::BAD_PARAM);
  EXPECT_EQ(modify(flow_action::FWD_DEST, kAction | kCounters, {}).status(), Status::BAD_PARAM);
  EXPECT_EQ(modify(flow_action::FWD_DEST, kAction | kCounters, {id + 1}).status(),
            Status::BAD_RESOURCE);
  arrive();
  EXPECT_EQ(host.received(rqns[0]), 1u);
  EXPECT_EQ(value(id).packets, 0u);
}

TEST_F(FlowCounters, CountersOfAFlowAreQueriedBehindItsDestinations) {
  using Query = query_flow_table_entry_in;
  using Entry = query_flow_table_entry_out;
  host.flow_counters = {alloc()};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0), tir(1)}));
  const auto reply = host.call<Entry, Query>(
      Opcode::QUERY_FLOW_TABLE_ENTRY, [&](auto in) { in.set(Query::table_id, table_id); }, {}, 0,
      3 * flow_context::destination_size);
  ASSERT_TRUE(reply.ok()) << reply.reason();
  const auto context = reply.as<Entry>().get(Entry::flow_context);
  EXPECT_EQ(context.get(flow_context::destination_list_size), 2u);
  EXPECT_EQ(context.get(flow_context::flow_counter_list_size), 1u);
  const auto list =
      std::span(reply.out).subspan(Entry::flow_context.kOffset + flow_context::destination_offset);
  const util::View<flow_counter_list_entry> third(list.subspan(2 * flow_context::destination_size));
  EXPECT_EQ(third.get(flow_counter_list_entry::flow_counter_id), host.flow_counters[0]);
}

TEST_F(FlowCounters, GoWithTheDriver) {
  host.flow_counters = {alloc()};
  expect_set(host.set_flow(table_id, host.create_group(table_id, 0, 0), 0, {tir(0)}));
  host.device.driver().drop_objects();
  while (!host.device.driver().clear_remains()) host.run();
  EXPECT_EQ(host.device.driver().ethernet().steering().counters().count(), 0u);
}

}  // namespace
}  // namespace softhca::connectx::test

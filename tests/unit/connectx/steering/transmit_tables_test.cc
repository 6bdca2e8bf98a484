// NIC transmit tables (PRM 7.11.4.2) decide which frames of SQs are sent.
#include <gtest/gtest.h>

#include "connectx/function/capabilities.h"
#include "connectx/steering/steering_host.h"

namespace softhca::connectx::test {
namespace {

constexpr std::uint64_t kFriend = 0x020000000077;
constexpr std::uint64_t kFoe = 0x020000000066;

class TransmitTables : public EthernetSteering {
 protected:
  TransmitTables() { host.table_type = flow_table_type::NIC_TX; }

  /// True if frames to `mac` leave. All of them must be treated alike.
  bool leaves(std::uint64_t mac, int frames = 3) {
    if (sqn == 0) sqn = host.create_sq(host.create_cq(8), 6);
    const auto frame = make_frame({.destination = mac});
    const auto buffer = host.allocate(frame.size());
    std::ranges::copy(frame, host.at(buffer));
    const auto before = host.port.sent.size();
    for (int i = 0; i != frames; ++i) {
      host.post_send(
          sqn, Wqe(wqe_opcode::SEND, sqn, host.posted(sqn))
                   .eth({}, true)
                   .pointer(EthernetHost::kKey, buffer, static_cast<std::uint32_t>(frame.size()))
                   .finish());
    }
    const auto sent = host.port.sent.size() - before;
    EXPECT_TRUE(sent == 0 || sent == std::size_t(frames)) << sent;
    return sent != 0;
  }
  /// A root that drops frames to kFoe.
  std::uint32_t drop_foe() {
    const auto id = host.create_table(0, 2);
    const auto group = host.create_group(id, 0, 3, dmac(kBroadcast));
    expect_set(host.set_flow(id, group, 0, {}, dmac(kFoe)));
    host.set_root(id);
    return id;
  }

  std::uint32_t sqn = 0;
};

TEST_F(TransmitTables, WithoutARootAllIsSent) {
  EXPECT_TRUE(leaves(kFriend));
  EXPECT_TRUE(leaves(kFoe));
}

TEST_F(TransmitTables, OnlyFramesThatAFlowDropsAreNotSent) {
  drop_foe();
  EXPECT_TRUE(leaves(kFriend));
  EXPECT_FALSE(leaves(kFoe));
  EXPECT_TRUE(leaves(kFriend));
}

// Frames like the previous one take a fast path, which consults no table.
TEST_F(TransmitTables, HoldForFramesLikeThoseBeforeThem) {
  EXPECT_TRUE(leaves(kFoe));
  const auto id = drop_foe();
  EXPECT_FALSE(leaves(kFoe));
  using Delete = delete_flow_table_entry_in;
  EXPECT_TRUE((host.call<delete_flow_table_entry_out, Delete>(
                       Opcode::DELETE_FLOW_TABLE_ENTRY,
                       [&](auto in) {
                         in.set(Delete::table_type,
                                static_cast<std::uint32_t>(flow_table_type::NIC_TX));
                         in.set(Delete::table_id, id);
                       })
                   .ok()));
  EXPECT_TRUE(leaves(kFoe));
}

TEST_F(TransmitTables, AFlowMayLeadToTheNextTable) {
  const auto root = host.create_table(0, 2);
  const auto next = host.create_table(1, 2);
  const auto all = host.create_group(root, 0, 0);
  expect_set(host.set_flow(root, all, 0, {table(next)}));
  const auto group = host.create_group(next, 0, 3, dmac(kBroadcast));
  expect_set(host.set_flow(next, group, 0, {}, dmac(kFoe)));
  host.set_root(root);
  EXPECT_TRUE(leaves(kFriend));
  EXPECT_FALSE(leaves(kFoe));
}

TEST_F(TransmitTables, AreNoOthersThanThoseOfReceiving) {
  drop_foe();
  host.table_type = flow_table_type::NIC_RX;
  host.steer_all_to(tirns[0]);
  EXPECT_EQ(where({.destination = kOwnMac}), 1u);
  EXPECT_FALSE(leaves(kFoe));
}

// PRM 7.11.3.5: "Flow Counters are supported only for NIC Rx, RDMA Rx, Egress ACLs and Sniffer Flow
// Tables."
TEST_F(TransmitTables, LeadToNoTirAndHaveNoTagsNoCountersAndOneDestination) {
  const auto id = host.create_table(0, 2);
  const auto next = host.create_table(1, 2);
  const auto group = host.create_group(id, 0, 3);
  EXPECT_EQ(host.set_flow(id, group, 0, {tir(0)}).status(), Status::BAD_PARAM);
  EXPECT_EQ(host.set_flow(id, group, 0, {table(next), table(next)}).status(), Status::BAD_PARAM);
  EXPECT_EQ(host.set_flow(id, group, 0, {table(next)}, {}, 7).status(), Status::BAD_PARAM);
  const auto counter = host.call<alloc_flow_counter_out, alloc_flow_counter_in>(
      Opcode::ALLOC_FLOW_COUNTER, [](auto) {});
  host.flow_counters = {
      counter.as<alloc_flow_counter_out>().get(alloc_flow_counter_out::flow_counter_id)};
  EXPECT_EQ(host.set_flow(id, group, 0, {table(next)}).status(), Status::BAD_PARAM);
  host.flow_counters.clear();
  EXPECT_TRUE(host.set_flow(id, group, 0, {table(next)}).ok());
}

TEST_F(TransmitTables, AreReportedButForTagsAndSeveralDestinations) {
  using Cap = flow_table_nic_cap;
  using Properties = flow_table_properties;
  const auto image =
      host.device.driver().capabilities().current(Capabilities::Type::FLOW_TABLE_NIC);
  const util::View<Cap> cap(image);
  const auto told = cap.get(Cap::flow_table_properties_nic_transmit);
  EXPECT_EQ(told.get(Properties::ft_support), 1u);
  EXPECT_EQ(told.get(Properties::flow_counter), 0u);
  EXPECT_EQ(told.get(Properties::flow_tag), 0u);
  EXPECT_EQ(told.get(Properties::log_max_destination), 0u);
}

}  // namespace
}  // namespace softhca::connectx::test

// Sniffer tables (PRM 3.5) copy the frames that the function receives and sends.
#include <gtest/gtest.h>

#include <array>

#include "connectx/ethernet/ethernet.h"
#include "connectx/port/network_port.h"
#include "connectx/steering/steering_host.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

/// TIR 0 receives arriving frames; TIR 1 belongs to the sniffer.
class Sniffer : public EthernetSteering {
 protected:
  Sniffer() { host.steer_all_to(tirns[0]); }

  /// Makes a table of `type` that copies every frame to TIR `number`.
  std::uint32_t sniff(flow_table_type type, unsigned number = 1) {
    host.table_type = type;
    const auto id = host.create_table(0, 0);
    expect_set(host.set_flow(id, host.create_group(id, 0, 0), 0, {tir(number)}));
    host.set_root(id);
    host.table_type = flow_table_type::NIC_RX;
    return id;
  }
  void send(const Bytes& frame) {
    if (sqn == 0) sqn = host.create_sq(host.create_cq(6), 6);
    const auto buffer = host.allocate(frame.size());
    std::ranges::copy(frame, host.at(buffer));
    host.post_send(
        sqn, Wqe(wqe_opcode::SEND, sqn, host.posted(sqn))
                 .eth({})
                 .pointer(EthernetHost::kKey, buffer, static_cast<std::uint32_t>(frame.size()))
                 .finish());
  }
  void enable_roce() {
    using In = modify_nic_vport_context_in;
    const auto answer = host.call<modify_nic_vport_context_out, In>(
        Opcode::MODIFY_NIC_VPORT_CONTEXT, [&](util::MutableView<In> in) {
          in.sub(In::field_select).set(modify_nic_vport_field_select::roce_en, 1);
          in.sub(In::nic_vport_context).set(nic_vport_context::roce_en, 1);
        });
    EXPECT_TRUE(answer.ok()) << answer.reason();
  }
  static Bytes roce_packet() {
    const FrameSpec spec{.udp = true, .destination_port = 4791};
    auto frame = make_frame(spec);
    frame[14 + 20 + 8] = std::byte{0x04};  // SEND only of a reliable connection
    frame[14 + 20 + 9] = std::byte{0};
    fix_checksums(frame, spec);
    return frame;
  }
  /// Number of frames that each TIR has received.
  std::array<std::uint32_t, 2> got() { return {host.received(rqns[0]), host.received(rqns[1])}; }
  using Got = std::array<std::uint32_t, 2>;

  std::uint32_t sqn = 0;
};

TEST_F(Sniffer, AReceiveSnifferGetsACopyAndTheOriginalArrives) {
  host.arrive(make_frame({}));
  host.arrive(make_frame({}));
  EXPECT_EQ(got(), (Got{2, 0}));
  sniff(flow_table_type::SNIFFER_RX);
  for (int i = 0; i < 3; ++i) host.arrive(make_frame({}));
  EXPECT_EQ(got(), (Got{5, 3}));
  send(make_frame({.destination = kOther}));
  EXPECT_EQ(got(), (Got{5, 3})) << "what is sent is another table's";
}

TEST_F(Sniffer, ASendSnifferGetsACopyOfEachPacket) {
  for (int i = 0; i < 2; ++i) send(make_frame({.destination = kOther}));
  sniff(flow_table_type::SNIFFER_TX);
  for (int i = 0; i < 3; ++i) send(make_frame({.destination = kOther}));
  EXPECT_EQ(got(), (Got{0, 3}));
  EXPECT_EQ(host.port.sent.size(), 5u);
  host.arrive(make_frame({}));
  EXPECT_EQ(got(), (Got{1, 3}));
}

TEST_F(Sniffer, ASnifferOfBothDirectionsGetsTwoCopiesOfALoopedBackPacket) {
  sniff(flow_table_type::SNIFFER_RX);
  sniff(flow_table_type::SNIFFER_TX);
  send(make_frame({.destination = EthernetHost::kMac}));
  EXPECT_EQ(got(), (Got{0, 1}));
  host.return_looped();
  EXPECT_EQ(got()[1], 2u);
}

TEST_F(Sniffer, GetsPacketsOfTheTransportToo) {
  enable_roce();
  host.arrive(roce_packet());
  EXPECT_EQ(got(), (Got{0, 0}));
  sniff(flow_table_type::SNIFFER_RX);
  host.arrive(roce_packet());
  EXPECT_EQ(got(), (Got{0, 1}));
  sniff(flow_table_type::SNIFFER_TX, 2);
  const auto bytes = roce_packet();
  for (int i = 0; i < 2; ++i) {
    (void)host.device.driver().network_port().transmit(wire::Frame::from_bytes(bytes));
  }
  EXPECT_EQ(host.received(rqns[2]), 2u);
}

// The frame itself has arrived: a copy that finds no WQE is no discard of the port.
TEST_F(Sniffer, ACopyThatFindsNoWqeIsNoDiscard) {
  const auto discards = [&] {
    return host.device.driver().network_port().counters().all_received_discards();
  };
  const auto empty = host.create_rq(host.create_cq(4), 2);
  const auto tirn = host.create_direct_tir(empty);
  host.table_type = flow_table_type::SNIFFER_RX;
  const auto id = host.create_table(0, 0);
  expect_set(host.set_flow(id, host.create_group(id, 0, 0), 0, {{destination_type::TIR, tirn}}));
  host.set_root(id);
  host.arrive(make_frame({}));
  EXPECT_EQ(got()[0], 1u);
  EXPECT_EQ(host.received(empty), 0u);
  EXPECT_EQ(discards(), 0u);
}

TEST_F(Sniffer, ReportsTheFrameAsItIs) {
  sniff(flow_table_type::SNIFFER_RX);
  const auto frame = make_frame({.payload = 60});
  const auto buffer = host.post_receive(rqns[1], 256);
  for (int i = 0; i < 31; ++i) host.arrive(frame);
  EXPECT_EQ(host.read(buffer, frame.size()), frame);
}

TEST_F(Sniffer, EndsWithItsTable) {
  const auto id = sniff(flow_table_type::SNIFFER_RX);
  const auto sent = sniff(flow_table_type::SNIFFER_TX);
  const auto destroy = [&](flow_table_type type, std::uint32_t table_id) {
    const auto with = [&](auto in, auto table_type, auto number) {
      in.set(table_type, static_cast<std::uint32_t>(type));
      in.set(number, table_id);
    };
    using Entry = delete_flow_table_entry_in;
    using Group = destroy_flow_group_in;
    using Table = destroy_flow_table_in;
    EXPECT_TRUE((host.call<delete_flow_table_entry_out, Entry>(
                         Opcode::DELETE_FLOW_TABLE_ENTRY,
                         [&](auto in) { with(in, Entry::table_type, Entry::table_id); })
                     .ok()));
    EXPECT_TRUE((host.call<destroy_flow_group_out, Group>(Opcode::DESTROY_FLOW_GROUP,
                                                          [&](auto in) {
                                                            with(in, Group::table_type,
                                                                 Group::table_id);
                                                            in.set(Group::group_id, 1);
                                                          })
                     .ok()));
    EXPECT_TRUE((host.call<destroy_flow_table_out, Table>(
                         Opcode::DESTROY_FLOW_TABLE,
                         [&](auto in) { with(in, Table::table_type, Table::table_id); })
                     .ok()));
  };
  destroy(flow_table_type::SNIFFER_RX, id);
  destroy(flow_table_type::SNIFFER_TX, sent);
  EXPECT_FALSE(host.device.driver().network_port().has_sniffer());
  host.arrive(make_frame({}));
  send(make_frame({.destination = kOther}));
  EXPECT_EQ(got(), (Got{1, 0}));
}

TEST_F(Sniffer, EndsWithTheDriver) {
  sniff(flow_table_type::SNIFFER_RX);
  sniff(flow_table_type::SNIFFER_TX);
  host.device.driver().drop_objects();
  while (!host.device.driver().clear_remains()) host.run();
  EXPECT_FALSE(host.device.driver().network_port().has_sniffer());
  EXPECT_FALSE(host.device.driver().ethernet().sniffs_received());
  host.arrive(make_frame({}));
}

TEST_F(Sniffer, TablesOfOneTypeDoNotLeadToThoseOfAnother) {
  host.table_type = flow_table_type::SNIFFER_RX;
  const auto sniffer = host.create_table(0, 0);
  const auto group = host.create_group(sniffer, 0, 0);
  host.table_type = flow_table_type::NIC_RX;
  const auto receive = host.create_table(5, 0);
  host.table_type = flow_table_type::SNIFFER_RX;
  EXPECT_EQ(host.set_flow(sniffer, group, 0, {table(receive)}).status(), Status::BAD_RESOURCE);
  EXPECT_EQ(host.set_flow(receive, group, 0, {tir(0)}).status(), Status::BAD_RESOURCE);
  using In = create_flow_table_in;
  const auto create = [&](flow_table_type type, std::uint32_t miss) {
    return host
        .call<create_flow_table_out, In>(
            Opcode::CREATE_FLOW_TABLE,
            [&](auto in) {
              in.set(In::table_type, static_cast<std::uint32_t>(type));
              const auto context = in.sub(In::flow_table_context);
              context.set(flow_table_context::level, 1);
              context.set(flow_table_context::table_miss_action,
                          static_cast<std::uint32_t>(table_miss_action::IDENTIFIED_MISS_TABLE));
              context.set(flow_table_context::table_miss_id, miss);
            })
        .status();
  };
  EXPECT_EQ(create(flow_table_type::SNIFFER_TX, receive), Status::BAD_RESOURCE);
  EXPECT_EQ(create(flow_table_type::NIC_RX, receive), Status::OK);
  EXPECT_EQ(create(flow_table_type::FDB, receive), Status::BAD_PARAM);
}

}  // namespace
}  // namespace softhca::connectx::test

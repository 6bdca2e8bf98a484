// Effects of the port's state and counters on RDMA traffic, and the traffic that stays inside the
// function (PRM 3.4, 11.1, 12.17).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "connectx/port/network_port.h"
#include "connectx/port/vport.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {
namespace {

using test::HostQp;
using test::kKey;
using test::RdmaTestHost;
using test::WqeBuilder;
using WqeOpcode = spec::connectx::wqe_opcode;

using enum Cast;
using enum Way;

constexpr std::uint32_t kGroupAddress = 0xEF010101;  // 239.1.1.1

/// Counts the frames that reach the wire.
class CountedWire final : public fabric::Receiver {
 public:
  void handle_frame(const wire::Frame&) override { ++frames; }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  unsigned frames = 0;
};

class RdmaPort : public ::testing::Test {
 protected:
  RdmaPort() { neighbour_->set_receiver(&wire_); }
  ~RdmaPort() override { neighbour_->set_receiver(nullptr); }

  void send(HostQp& from, std::uint32_t qpn, const rdma::Mac& mac, const rdma::Gid& gid) {
    host_.post_send(from, WqeBuilder(WqeOpcode::SEND, from.send_producer, from.qpn)
                              .datagram(qpn, RdmaTestHost::kQkey, mac, gid, 3)
                              .data(text_, 5, kKey)
                              .bytes());
    host_.ring_send(from);
    host_.run();
  }
  void send(HostQp& from, const HostQp& to) { send(from, to.qpn, host_.mac, host_.gid); }
  void send_to_group(HostQp& from) {
    constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;
    send(from, kMulticastQpn, rdma::Mac::from_u64(0x01005E010101),
         rdma::Gid::from_ipv4(kGroupAddress));
  }
  /// A QP in the group. If `block`, it does not receive frames from its own port.
  HostQp member(bool block) {
    auto qp = host_.allocate_qp({.service = test::Service::UD});
    using In = spec::connectx::create_qp_in;
    using Out = spec::connectx::create_qp_out;
    const auto made = host_.call<Out, In>(
        test::Opcode::CREATE_QP,
        [&](util::MutableView<In> in) {
          host_.fill_create(in, qp);
          in.sub(In::qpc).set(spec::connectx::qpc::block_lb_mc, block);
        },
        host_.page_list(qp.ring, qp.send_offset() + (std::size_t{64} << qp.options.log_sq)));
    EXPECT_TRUE(made);
    qp.qpn = made.as<Out>().get(Out::qpn);
    EXPECT_TRUE(host_.to_init(qp));
    EXPECT_TRUE(host_.to_rtr(qp, 0));
    EXPECT_TRUE(host_.to_rts(qp));
    using Attach = spec::connectx::attach_to_mcg_in;
    EXPECT_TRUE((host_.call<spec::connectx::attach_to_mcg_out, Attach>(
        test::Opcode::ATTACH_TO_MCG, [&](util::MutableView<Attach> in) {
          in.set(Attach::qpn, qp.qpn);
          const auto gid = rdma::Gid::from_ipv4(kGroupAddress);
          std::ranges::copy(gid.bytes, in.sub(Attach::multicast_gid).begin());
        })));
    host_.post_receive(qp, host_.allocate(256), 256);
    return qp;
  }
  auto set_pkey(HostQp& qp, std::uint32_t index) {
    constexpr auto kBit = static_cast<unsigned>(spec::connectx::qp_opt_param_bit::PKEY_INDEX);
    return host_.modify(qp, test::Opcode::INIT2INIT_QP, 1u << kBit, [&](auto context) {
      context.sub(test::qpc::primary_address_path).set(test::ads::pkey_index, index);
    });
  }
  /// A UD QP in RTS with this P_Key index.
  HostQp at_pkey(std::uint32_t index) {
    auto qp = host_.create_qp({.service = test::Service::UD});
    EXPECT_TRUE(host_.to_init(qp));
    EXPECT_TRUE(set_pkey(qp, index));
    EXPECT_TRUE(host_.to_rtr(qp, 0));
    EXPECT_TRUE(host_.to_rts(qp));
    return qp;
  }
  unsigned receives() {
    unsigned count = 0;
    for (const auto& cqe : host_.poll_all(host_.cq)) {
      count += cqe.opcode == test::CqeOpcode::RESPONDER_SEND ? 1 : 0;
    }
    return count;
  }
  const TrafficCounters& counters() { return host_.device.driver().network_port().counters(); }

  RdmaTestHost host_;
  std::unique_ptr<fabric::Port> neighbour_ = host_.network.create_port("neighbour");
  CountedWire wire_;
  pcie::Iova text_ = host_.put_text("hello");
};

TEST_F(RdmaPort, APacketToTheFunctionItselfStaysOffTheWire) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  host_.post_receive(b, host_.allocate(256), 256);
  send(a, b);
  EXPECT_EQ(receives(), 1u);
  EXPECT_EQ(wire_.frames, 0u);
  EXPECT_EQ(counters().rx(connectx::Service::kRdma, kLoopback).total().packets, 1u);
  EXPECT_EQ(counters().rx(connectx::Service::kRdma, kWire).total().packets, 0u);
}

TEST_F(RdmaPort, APacketForAQpThatDoesNotExistIsNotTheNetdevs) {
  auto a = host_.datagram_qp();
  send(a, 0x123456, host_.mac, host_.gid);
  EXPECT_EQ(counters().rx(connectx::Service::kRdma, kLoopback).total().packets, 1u);
  EXPECT_EQ(counters().rx(connectx::Service::kEthernet, kLoopback).total().packets, 0u);
  EXPECT_EQ(host_.device.driver().rdma().counters().dropped_for(rdma::Drop::kNoQp), 1u);
}

// QUERY_HCA_VPORT_PKEY: RoCE has one partition, at index 0. IBTA 10.9.1.1: an empty entry belongs
// to no partition.
TEST_F(RdmaPort, AQpWithAnEmptyPkeyIsOfNoPartition) {
  auto a = host_.datagram_qp();
  for (const std::uint32_t index : {0u, 1u}) {
    auto b = at_pkey(index);
    host_.post_receive(b, host_.allocate(256), 256);
    send(a, b);
    EXPECT_EQ(receives(), index == 0 ? 1u : 0u);
    EXPECT_EQ(host_.device.driver().rdma().counters().dropped_for(rdma::Drop::kPkey), index);
  }
}

TEST_F(RdmaPort, APkeyIndexBeyondTheTableIsRefused) {
  auto qp = host_.create_qp({.service = test::Service::UD});
  ASSERT_TRUE(host_.to_init(qp));
  EXPECT_EQ(set_pkey(qp, 128).status(), spec::connectx::command_status::BAD_INDEX);
  EXPECT_TRUE(set_pkey(qp, 127));
}

TEST_F(RdmaPort, PortThatIsDownNeitherSendsNorReceives) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  host_.post_receive(b, host_.allocate(256), 256);
  auto& port = host_.device.driver().network_port();
  port.state().set_admin_status(PortState::AdminStatus::DOWN);
  send(a, b);
  send(a, 5, rdma::Mac::from_u64(0x020000000055), rdma::Gid::from_ipv4(0xC0A80A55));
  EXPECT_EQ(receives(), 0u);
  EXPECT_EQ(wire_.frames, 0u);
  EXPECT_EQ(counters().transmitted_discards, 2u);
  port.state().set_admin_status(PortState::AdminStatus::UP);
  send(a, b);
  EXPECT_EQ(receives(), 1u);
}

TEST_F(RdmaPort, PathOfAPortThatIsDownRunsOutOfRetries) {
  auto [a, b] = host_.connected();
  host_.device.driver().network_port().state().set_vport_up(false);
  host_.post_send(a,
                  WqeBuilder(WqeOpcode::SEND, a.send_producer, a.qpn).data(text_, 5, kKey).bytes());
  host_.ring_send(a);
  host_.run(std::chrono::minutes(1));
  const auto cqe = host_.poll(host_.cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->syndrome, test::Syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED);
}

TEST_F(RdmaPort, MulticastComesBackToOwnQpsButThoseThatBlockIt) {
  const auto open = member(false);
  const auto blocking = member(true);
  auto sender = host_.datagram_qp();
  send_to_group(sender);
  EXPECT_EQ(wire_.frames, 1u) << "it goes to others too";
  unsigned to_open = 0;
  for (const auto& cqe : host_.poll_all(host_.cq)) {
    if (cqe.opcode != test::CqeOpcode::RESPONDER_SEND) continue;
    EXPECT_NE(cqe.qpn, blocking.qpn);
    to_open += cqe.qpn == open.qpn ? 1 : 0;
  }
  EXPECT_EQ(to_open, 1u);
}

TEST_F(RdmaPort, VportCountsMulticastAsMulticastAndClearsBoth) {
  (void)member(false);
  auto sender = host_.datagram_qp();
  send_to_group(sender);
  send(sender, sender);
  using In = spec::connectx::query_vport_counter_in;
  using Out = spec::connectx::query_vport_counter_out;
  using Counter = spec::connectx::traffic_counter;
  const auto query = [&](auto field) {
    const auto out = host_.call<Out, In>(test::Opcode::QUERY_VPORT_COUNTER,
                                         [&](util::MutableView<In> in) { in.set(In::clear, 0); });
    EXPECT_TRUE(out);
    const auto counter = out.template as<Out>().get(field);
    EXPECT_EQ(counter.get(Counter::octets) != 0, counter.get(Counter::packets) != 0);
    return counter.get(Counter::packets);
  };
  EXPECT_EQ(query(Out::transmitted_ib_multicast), 1u);
  EXPECT_EQ(query(Out::transmitted_ib_unicast), 1u);
  EXPECT_EQ(query(Out::received_ib_multicast), 1u);
  EXPECT_EQ(query(Out::received_ib_unicast), 1u);
  EXPECT_EQ(query(Out::local_loopback), 2u);
  EXPECT_TRUE((host_.call<Out, In>(test::Opcode::QUERY_VPORT_COUNTER,
                                   [&](util::MutableView<In> in) { in.set(In::clear, 1); })));
  EXPECT_EQ(query(Out::transmitted_ib_multicast), 0u);
  EXPECT_EQ(query(Out::received_ib_unicast), 0u);
  EXPECT_EQ(counters().tx(connectx::Service::kRdma, kWire).of(kMulticast).packets, 1u)
      << "the port's stay";
}

}  // namespace
}  // namespace softhca::connectx

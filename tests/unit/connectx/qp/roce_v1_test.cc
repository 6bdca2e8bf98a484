// RoCE v1 beside v2 (IBTA Annex A16; mlx5 driver interface 7.8): the address table entry that a QP
// or datagram names decides the version of its packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "connectx/port/network_port.h"
#include "connectx/qp/data_path.h"
#include "spec/connectx/vport.h"
#include "util/endian.h"
#include "wire/grh.h"

namespace softhca::connectx {
namespace {

using test::HostQp;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using test::WqeBuilder;
using WqeOpcode = spec::connectx::wqe_opcode;

constexpr std::uint8_t kIndexV2 = 3;  ///< the host's own address
constexpr std::uint8_t kIndexV1 = 9;
constexpr std::size_t kEthernetSize = 14;
constexpr std::uint16_t kRoceEtherType = 0x8915;

/// Collects the frames that reach the wire.
class CollectedWire final : public fabric::Receiver {
 public:
  void handle_frame(const wire::Frame& frame) override {
    frames.emplace_back(frame.size());
    frame.copy_to(frames.back());
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  std::vector<std::vector<std::byte>> frames;
};

class RdmaRoceV1 : public RdmaDataPath {
 protected:
  RdmaRoceV1() {
    neighbour_->set_receiver(&wire_);
    using namespace spec::connectx;
    EXPECT_TRUE((host_.call<set_roce_address_out, set_roce_address_in>(
        test::Opcode::SET_ROCE_ADDRESS, [&](auto in) {
          in.set(set_roce_address_in::roce_address_index, kIndexV1);
          const auto entry = in.sub(set_roce_address_in::roce_address);
          std::ranges::copy(host_.gid.bytes, entry.sub(roce_address::source_l3_address).begin());
          std::ranges::copy(host_.mac.bytes, entry.sub(roce_address::source_mac).begin());
          entry.set(roce_address::roce_version, static_cast<std::uint32_t>(roce_version::V1));
        })));
  }
  ~RdmaRoceV1() override { neighbour_->set_receiver(nullptr); }

  /// Takes a QP to RTS, connected. Its packets use the address `index` and go to `mac`.
  void connect(HostQp& qp, std::uint32_t peer, std::uint8_t index, const rdma::Mac& mac) {
    ASSERT_TRUE(host_.to_init(qp));
    ASSERT_TRUE(host_.modify(qp, test::Opcode::INIT2RTR_QP, 0, [&](auto context) {
      using namespace spec::connectx;
      context.set(qpc::mtu, static_cast<std::uint32_t>(qp_mtu::BYTES_1K));
      context.set(qpc::log_msg_max, 30);
      context.set(qpc::remote_qpn, peer);
      context.set(qpc::next_rcv_psn, 0x1000);
      context.set(qpc::log_rra_max, 2);
      const auto path = context.sub(qpc::primary_address_path);
      path.set(ads::src_addr_index, index);
      path.set(ads::hop_limit, 64);
      path.set(ads::tclass, 0x48);
      path.set(ads::flow_label, 0xABCDE);
      path.set(ads::udp_sport, RdmaTestHost::kUdpPort);
      std::ranges::copy(mac.bytes, path.sub(ads::rmac).begin());
      std::ranges::copy(host_.gid.bytes, path.sub(ads::rgid_rip).begin());
    }));
    ASSERT_TRUE(host_.to_rts(qp));
  }
  std::pair<HostQp, HostQp> connected_by(std::uint8_t index) {
    std::pair pair{host_.create_qp(), host_.create_qp()};
    connect(pair.first, pair.second.qpn, index, host_.mac);
    connect(pair.second, pair.first.qpn, index, host_.mac);
    return pair;
  }
  static std::uint16_t ether_type(const std::vector<std::byte>& frame) {
    return util::load_be16(frame.data() + 12);
  }

  const rdma::Mac other_ = rdma::Mac::from_u64(0x020000000055);
  std::unique_ptr<fabric::Port> neighbour_ = host_.network.create_port("neighbour");
  CollectedWire wire_;
};

// IBTA Annex A16 16.3: "RoCE packets use the IEEE-assigned EtherType" 8915h, and have a GRH.
TEST_F(RdmaRoceV1, PacketsOfAConnectionHaveTheEtherTypeAndAGrh) {
  auto qp = host_.create_qp();
  connect(qp, 5, kIndexV1, other_);
  send(qp, wqe(qp, WqeOpcode::SEND).inline_data("hello"));
  host_.run();
  ASSERT_FALSE(wire_.frames.empty());
  const auto& frame = wire_.frames[0];
  EXPECT_EQ(ether_type(frame), kRoceEtherType);
  const auto grh = wire::Grh::parse(wire::GrhView(std::span(frame).subspan(kEthernetSize)));
  ASSERT_TRUE(grh);
  EXPECT_EQ(grh->next_header, wire::Grh::kIbaTransport);
  EXPECT_EQ(grh->sgid, host_.gid);
  EXPECT_EQ(grh->dgid, host_.gid);
  EXPECT_EQ(grh->hop_limit, 64);
  EXPECT_EQ(grh->traffic_class, 0x48);
  EXPECT_EQ(grh->flow_label, 0xABCDEu);
}

TEST_F(RdmaRoceV1, EachQpGoesByTheVersionOfItsAddress) {
  for (const auto index : {kIndexV1, kIndexV2}) {
    auto qp = host_.create_qp();
    connect(qp, 5, index, other_);
    wire_.frames.clear();
    send(qp, wqe(qp, WqeOpcode::SEND).inline_data("hello"));
    host_.run();
    ASSERT_FALSE(wire_.frames.empty());
    EXPECT_EQ(ether_type(wire_.frames[0]) == kRoceEtherType, index == kIndexV1);
  }
}

TEST_F(RdmaRoceV1, ConnectionsCarryMessagesOfManyPackets) {
  auto [a, b] = connected_by(kIndexV1);
  constexpr std::uint32_t kSize = 20'000;
  const auto from = host_.allocate(kSize);
  const auto to = host_.allocate(kSize);
  for (std::uint32_t i = 0; i < kSize; ++i) *host_.at(from + i) = static_cast<std::byte>(i * 7);
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(to, kKey).data(from, kSize, kKey));
  host_.run(std::chrono::milliseconds(1));
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].opcode, test::CqeOpcode::REQUESTER);
  EXPECT_TRUE(std::equal(host_.at(from), host_.at(from) + kSize, host_.at(to)));
  EXPECT_TRUE(wire_.frames.empty()) << "what a function sends to itself";
}

// The port has the address in both versions, and would accept packets of both.
TEST_F(RdmaRoceV1, VersionsDoNotMix) {
  std::pair pair{host_.create_qp(), host_.create_qp()};
  connect(pair.first, pair.second.qpn, kIndexV1, host_.mac);
  connect(pair.second, pair.first.qpn, kIndexV2, host_.mac);
  host_.post_receive(pair.second, host_.allocate(64), 64);
  send(pair.first, wqe(pair.first, WqeOpcode::SEND).inline_data("hello"));
  host_.run(std::chrono::minutes(1));
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, test::Syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED);
}

// The receiver's CQE gives the version in l3_type, and the 40 bytes before the payload are the GRH.
TEST_F(RdmaRoceV1, ADatagramBringsItsGrh) {
  auto a = host_.datagram_qp();
  auto b = host_.datagram_qp();
  for (int i = 0; i < 3; ++i) {  // from the second on, on the fast path
    const auto buffer = host_.allocate(128);
    host_.post_receive(b, buffer, 128);
    send(a, wqe(a, WqeOpcode::SEND)
                .unsignaled()
                .datagram(b.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, kIndexV1)
                .inline_data("hello"));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].byte_count, wire::GrhLayout::kSize + 5);
    using Layout = spec::connectx::cqe64_responder;
    EXPECT_EQ(Layout::sl_l3_type.read(cqes[0].bytes.data()),
              static_cast<std::uint32_t>(spec::connectx::cqe_roce_l3_type::GRH));
    EXPECT_EQ(Layout::grh.read(cqes[0].bytes.data()), 1u);
    const auto grh = wire::Grh::parse(
        wire::GrhView(std::span<const std::byte>(host_.at(buffer), wire::GrhLayout::kSize)));
    ASSERT_TRUE(grh);
    EXPECT_EQ(grh->next_header, wire::Grh::kIbaTransport);
    EXPECT_EQ(grh->sgid, host_.gid);
    EXPECT_EQ(host_.text(buffer + wire::GrhLayout::kSize, 5), "hello");
  }
}

// The capability (roce_cap.roce_version) requires it: with RoCE off, these are ordinary frames.
TEST_F(RdmaRoceV1, WithRoceOffTheEtherTypeMeansNothing) {
  auto [a, b] = connected_by(kIndexV1);
  using namespace spec::connectx;
  EXPECT_TRUE((host_.call<modify_nic_vport_context_out, modify_nic_vport_context_in>(
      test::Opcode::MODIFY_NIC_VPORT_CONTEXT, [&](auto in) {
        in.sub(modify_nic_vport_context_in::field_select)
            .set(modify_nic_vport_field_select::roce_en, 1);
      })));
  send(a, wqe(a, WqeOpcode::SEND).inline_data("hello"));
  host_.run(std::chrono::milliseconds(100));
  EXPECT_EQ(host_.device.driver()
                .network_port()
                .counters()
                .rx(connectx::Service::kRdma, Way::kLoopback)
                .total()
                .packets,
            0u);
}

}  // namespace
}  // namespace softhca::connectx

// The station of the addresses that processes share: to which of them the hub steers each frame.
#include "hub/station.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hub/cm_packets.h"
#include "hub/hub_client.h"
#include "hub/udp_sender.h"
#include "hub/uplink_process.h"
#include "wire/arp.h"
#include "wire/ib_header.h"
#include "wire/icrc.h"
#include "wire/neighbor_discovery.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const wire::Gid kSharedAddress = wire::Gid::from_ipv4(127, 0, 0, 1);
const wire::Gid kGuestAddress = wire::Gid::from_ipv4(198, 19, 0, 9);

wire::Gid ipv6_of(unsigned host) {
  wire::Gid gid;
  gid.bytes[0] = std::byte{0xfd};
  gid.bytes[15] = std::byte(host);
  return gid;
}

/// Processes a and b share addresses; c is another one.
class StationTest : public UplinkTest {
 protected:
  StationTest() { begin({}); }
  ~StationTest() override {
    for (auto* const process : {&a_, &b_, &c_}) process->reset();
    hub_.reset();  // it publishes their blocks
  }

  void begin(Hub::Options options) {
    c_.reset();
    options.roce_port = free_port(kSharedAddress);
    start(options);
    a_ = join_hub(true);
    b_ = join_hub(true);
    c_ = join_hub();
    // The hub's switch learns their ports.
    for (auto* const process : {a_.get(), b_.get(), c_.get()}) {
      process->send(fabric::frame_of(0xffff'ffff'ffff, process->mac(), "here"));
    }
    run_everything();
    take_all();
  }
  void run_everything() {
    for (int i = 0; i != 3; ++i) {
      run_all();
      if (c_ != nullptr) c_->turn();
    }
  }
  std::uint64_t station() const {
    return address_of(a_->link().shared()->sharing().station).to_u64();
  }
  /// The process's QP number `number`.
  static wire::Qpn qpn_of(Process& process, std::uint32_t number) {
    return wire::Qpn(std::uint32_t{process.link().shared()->sharing().block} << kBlockShift |
                     number);
  }

  wire::IbAddress path(Process& from) const {
    wire::IbAddress address;
    address.source_mac = wire::MacAddress::from_u64(from.mac());
    address.destination_mac = wire::MacAddress::from_u64(station());
    address.source_gid = kGuestAddress;
    address.destination_gid = kSharedAddress;
    address.hop_limit = 64;
    return address;
  }
  static wire::Frame packet(const wire::IbAddress& address, wire::Qpn to, std::uint32_t psn) {
    static const std::vector<std::byte> payload(1024, std::byte{0x5a});
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
    bth.dest_qp = to;
    bth.psn = wire::Psn(psn);
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, payload.size(), frame);
    EXPECT_TRUE(frame.add_segment(payload));
    return frame;
  }
  /// A frame with a message to QP1. `message` must outlive it.
  static wire::Frame message_frame(const wire::IbAddress& address, const CmPacket& message) {
    constexpr std::size_t kHead = CmPacket::kMad;
    const auto bytes = std::span(message.bytes);
    wire::ExtHeaders ext;
    ext.deth =
        wire::Deth::parse(util::View<wire::DethLayout>(bytes.subspan(wire::BthLayout::kSize)));
    const auto payload = bytes.subspan(kHead, bytes.size() - kHead - wire::kIcrcSize);
    wire::Frame frame;
    wire::IbHeader(address).emit(wire::Bth::parse(wire::BthView(bytes)), ext, payload.size(),
                                 frame);
    EXPECT_TRUE(frame.add_segment(payload));
    return frame;
  }
  void send(Process& from, const wire::Frame& frame) {
    from.push(frame);
    run_hub();
  }
  /// PSNs of the packets that have arrived, all of which have the process's own MAC.
  static std::vector<std::uint32_t> psns(Process& process) {
    std::vector<std::uint32_t> all;
    for (const auto& packet : process.take_packets()) {
      EXPECT_EQ(packet.address.destination_mac.to_u64(), process.mac());
      all.push_back(packet.bth.psn.value());
    }
    return all;
  }
  void take_all() {
    for (auto* process : {a_.get(), b_.get(), c_.get()}) (void)process->take();
  }
  const hub::Station::Counters& counters() const { return hub_->station().counters(); }
  /// Lets the process ask for the shared address. The hub may refuse the socket.
  void have_address(Process& process) {
    process.link().shared()->set_addresses(std::span(&kSharedAddress, 1));
    process.link().settle();
    run_hub();
    process.turn();
  }

  std::unique_ptr<Process> c_;
  std::vector<std::pair<unsigned, unsigned>> published_;  ///< block and process
};

TEST_F(StationTest, APacketGoesToTheProcessOfItsBlock) {
  send(*c_, packet(path(*c_), qpn_of(*b_, 0x77), 1));
  send(*c_, packet(path(*c_), qpn_of(*a_, 0x77), 2));
  send(*c_, packet(path(*c_), qpn_of(*b_, 1), 3));
  EXPECT_THAT(psns(*a_), ElementsAre(2));
  EXPECT_THAT(psns(*b_), ElementsAre(1, 3)) << "only QP 1 without a block is the manager's";
  EXPECT_THAT(psns(*c_), IsEmpty());
  EXPECT_EQ(counters().packets, 3u);
}

TEST_F(StationTest, APacketOfAnyEncapsulationIsSteered) {
  auto v1 = path(*c_), of_ipv6 = path(*c_);
  v1.encapsulation = wire::Encapsulation::kRoceV1;
  of_ipv6.source_gid = ipv6_of(9);
  of_ipv6.destination_gid = ipv6_of(1);
  send(*c_, packet(v1, qpn_of(*b_, 5), 1));
  send(*c_, packet(of_ipv6, qpn_of(*b_, 5), 2));
  EXPECT_THAT(psns(*b_), ElementsAre(1, 2));
}

TEST_F(StationTest, ProcessesOfOneAddressReachEachOther) {
  send(*a_, packet(path(*a_), qpn_of(*b_, 5), 1));
  send(*b_, packet(path(*b_), qpn_of(*a_, 5), 2));
  EXPECT_THAT(psns(*b_), ElementsAre(1));
  EXPECT_THAT(psns(*a_), ElementsAre(2));
}

// A process's own switch must not learn its MAC at the port to the hub.
TEST_F(StationTest, APacketForItsSenderComesFromTheStation) {
  send(*a_, packet(path(*a_), qpn_of(*a_, 5), 1));
  const auto back = a_->take_packets();
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].address.source_mac.to_u64(), station());
  EXPECT_EQ(back[0].address.destination_mac.to_u64(), a_->mac());
}

TEST_F(StationTest, APacketForABlockWithoutAProcessIsDropped) {
  const auto gone = qpn_of(*b_, 5);
  send(*c_, packet(path(*c_), wire::Qpn(0x990005), 1));
  send(*c_, packet(path(*c_), wire::Qpn(5), 2));
  b_.reset();
  run_hub();
  send(*c_, packet(path(*c_), gone, 3));
  EXPECT_EQ(counters().no_process, 3u);
  b_ = join_hub(true);
  run_everything();
  EXPECT_NE(qpn_of(*b_, 5), gone) << "the block rests";
  EXPECT_THAT(psns(*b_), IsEmpty());
  EXPECT_THAT(psns(*a_), IsEmpty());
}

TEST_F(StationTest, PacketsWaitForRoomAndArriveInOrder) {
  Hub::Options options;
  options.ring_capacity = os::SharedRing::kCapacityMin;
  begin(options);
  constexpr unsigned kPackets = 600;
  std::vector<std::uint32_t> arrived, expected(kPackets);
  for (unsigned i = 0; i != kPackets; ++i) {
    expected[i] = i;
    c_->push(packet(path(*c_), qpn_of(*b_, 5), i));
    if (i % 32 != 31) continue;
    run_hub();
    // Process b drains its ring only now and then.
    if (i % 64 == 63) std::ranges::copy(psns(*b_), std::back_inserter(arrived));
  }
  for (int i = 0; i != 50; ++i) {
    run_hub();
    std::ranges::copy(psns(*b_), std::back_inserter(arrived));
  }
  EXPECT_EQ(arrived, expected);
  EXPECT_EQ(hub_->counters().dropped, 0u);
}

// Each process may have asked.
TEST_F(StationTest, AnswersOfNeighborsGoToEachProcess) {
  wire::Frame reply;
  const auto head = reply.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = wire::MacAddress::from_u64(station()),
                 .source = wire::MacAddress::from_u64(c_->mac()),
                 .ether_type = wire::EtherType::kArp}
      .emit(util::MutableView<wire::EthernetLayout>(head));
  send(*c_, reply);
  EXPECT_EQ(a_->take().size(), 1u);
  EXPECT_EQ(b_->take().size(), 1u);
  EXPECT_THAT(c_->take(), IsEmpty());
  EXPECT_EQ(counters().neighbors, 1u);
  // The hub's switch still has process c at its own port.
  send(*a_, packet(path(*a_), qpn_of(*b_, 5), 1));
  send(*b_, fabric::frame_of(c_->mac(), b_->mac(), "to c"));
  EXPECT_THAT(c_->take(), ElementsAre("to c"));
}

// The hub may refuse it: it has no such address in this network.
TEST_F(StationTest, ANoteComesWithTheAnswerAboutAnAddress) {
  EXPECT_FALSE(a_->link().shared()->take_news());
  have_address(*a_);
  EXPECT_TRUE(a_->link().shared()->take_news());
  EXPECT_FALSE(a_->link().shared()->awaits_answers());
}

TEST_F(StationTest, AMessageGoesToItsListener) {
  have_address(*a_);
  have_address(*b_);
  ASSERT_TRUE(b_->link().shared()->listen({.id = kService, .address = CmService::all()}));
  b_->link().settle();
  run_hub();
  take_all();
  const auto request = cm_request(kService, 5);
  send(*c_, message_frame(path(*c_), request));
  const auto at_b = b_->take_packets();
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].bth.dest_qp, wire::kGsiQpn);
  EXPECT_EQ(at_b[0].address.destination_mac.to_u64(), b_->mac());
  EXPECT_EQ(at_b[0].address.source_mac.to_u64(), c_->mac());
  const auto reply = cm_packet(Cm::REP, 1, qpn_of(*a_, 0).value() << 8 | 9);
  send(*b_, message_frame(path(*b_), reply));
  EXPECT_EQ(a_->take_packets().size(), 1u);
  EXPECT_THAT(b_->take_packets(), IsEmpty());
  // To the sender itself.
  const auto own = cm_request(kService, 6);
  send(*b_, message_frame(path(*b_), own));
  EXPECT_EQ(b_->take_packets().size(), 1u);
  EXPECT_EQ(counters().messages, 3u);
}

TEST_F(StationTest, AMessageForNoProcessIsDropped) {
  have_address(*a_);
  take_all();
  const auto reply = cm_packet(Cm::REP, 1, 0x99'00'00'09);
  send(*c_, message_frame(path(*c_), reply));
  auto elsewhere = path(*c_);
  elsewhere.destination_gid = wire::Gid::from_ipv4(127, 0, 0, 2);
  const auto request = cm_request(kService, 5);
  send(*c_, message_frame(elsewhere, request));
  EXPECT_THAT(a_->take_packets(), IsEmpty());
  EXPECT_THAT(b_->take_packets(), IsEmpty());
  EXPECT_EQ(counters().no_process, 2u);
}

TEST_F(StationTest, OtherFramesAreDropped) {
  const auto whole = packet(path(*c_), qpn_of(*b_, 5), 1);
  std::vector<std::byte> good(whole.size());
  whole.copy_to(good);
  const auto send_changed = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = std::byte(value);
    send(*c_, wire::Frame::from_bytes(bytes));
  };
  constexpr std::size_t kIp = 14, kUdp = kIp + 20;
  send_changed(12, 0x81);        // a VLAN tag, as far as it goes
  send_changed(kIp, 0x65);       // version 6
  send_changed(kIp, 0x46);       // options
  send_changed(kIp + 2, 0);      // total length below 256: still UDP, but let it be short
  send_changed(kIp + 6, 0x20);   // more fragments
  send_changed(kIp + 7, 1);      // a later fragment
  send_changed(kIp + 9, 6);      // TCP
  send_changed(kUdp + 3, 0xb8);  // another port
  for (const std::size_t size : {14u, 20u, 33u, 41u, 45u, 53u}) {
    send(*c_, wire::Frame::from_bytes(std::span(good).first(size)));
  }
  send(*c_, fabric::frame_of(station(), c_->mac(), "experiment"));
  EXPECT_EQ(counters().packets, 1u) << "the total length is the receiver's business";
  EXPECT_EQ(counters().unfit, 14u);
  EXPECT_THAT(a_->take(), IsEmpty());
  EXPECT_EQ(b_->take().size(), 1u);
}

TEST_F(StationTest, AMessageLongerThanItsFrameIsDropped) {
  have_address(*a_);
  take_all();
  const auto request = cm_request(kService, 5);
  const auto whole = message_frame(path(*c_), request);
  std::vector<std::byte> bytes(whole.size());
  whole.copy_to(bytes);
  send(*c_, wire::Frame::from_bytes(std::span(bytes).first(bytes.size() - 1)));
  EXPECT_EQ(counters().unfit, 1u);
  bytes[14 + 2] = std::byte{0x7f};
  send(*c_, wire::Frame::from_bytes(bytes));
  EXPECT_EQ(counters().unfit, 2u);
  EXPECT_THAT(a_->take(), IsEmpty());
}

TEST_F(StationTest, BlocksArePublished) {
  Hub::Options options;
  options.publish_block = [&](RoceBlock block, unsigned number) {
    published_.emplace_back(block, number);
  };
  begin(options);
  const auto number_of_b = b_->link().number();
  const auto number = a_->link().shared()->sharing().station;
  b_.reset();
  run_hub();
  EXPECT_THAT(published_, ElementsAre(std::pair(0u, number), std::pair(1u, a_->link().number()),
                                      std::pair(2u, number_of_b), std::pair(2u, 0u)));
}

}  // namespace
}  // namespace softhca::hub

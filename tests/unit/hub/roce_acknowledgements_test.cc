// Acknowledgements that wait until the program has seen the packet and the peer its answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/roce_link.h"
#include "hub/udp_address.h"
#include "loopback_address.h"
#include "os/memory_faults.h"
#include "udp_sender.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A device on a link, and its peer, which is a bare socket.
class RoceAcknowledgementsTest : public testing::Test {
 protected:
  RoceAcknowledgementsTest() : peer_(*RoceSocket::open(loopback_address(42))) {
    link_.set_addresses(std::span(&own_, 1));
    RoceSocket::set_merging(peer_->fd(), false);
    device_->set_receiver(&receiver_);
    wire::IbAddress to_device;
    to_device.source_gid = peer_->address();
    to_device.destination_gid = own_;
    to_device.hop_limit = 64;
    to_link_ = wire::IbHeader(to_device);
    std::swap(to_device.source_gid, to_device.destination_gid);
    to_device.source_mac = mac_;
    to_device.destination_mac = RoceLink::mac();
    to_peer_ = wire::IbHeader(to_device);
  }
  /// Begins a turn in which so many packets have come.
  void begin_turn(std::size_t packets) {
    for (std::size_t i = 0; i != packets; ++i) {
      wire::Bth bth;
      bth.opcode = wire::Opcode::RC_SEND_ONLY;
      wire::Frame frame;
      to_link_.emit(bth, {}, 0, frame);
      wire::RoceDatagram datagram;
      ASSERT_TRUE(datagram.make(frame, wire::kRoceUdpPort));
      peer_->send(std::span(&datagram, 1));
    }
    ASSERT_EQ(link_.receive(fabric::kAllFrames), packets);
    fabric_.deliver(fabric::kAllFrames);
  }
  void transmit(wire::Opcode opcode, std::uint32_t psn, std::uint32_t qpn = 1,
                const wire::Aeth& aeth = wire::Aeth::ack(wire::Msn(1)),
                std::span<const std::byte> payload = {}) {
    wire::Bth bth;
    bth.opcode = opcode;
    bth.psn = wire::Psn(psn);
    bth.dest_qp = wire::Qpn(qpn);
    wire::Frame frame;
    wire::ExtHeaders ext;
    ext.aeth = aeth;
    to_peer_.emit(bth, ext, payload.size(), frame);
    ASSERT_TRUE(frame.add_segment(payload));
    device_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
  }
  void acknowledge(std::uint32_t psn, std::uint32_t qpn = 1) {
    transmit(wire::Opcode::RC_ACKNOWLEDGE, psn, qpn);
  }
  /// What the peer has got: operation and PSN of each packet.
  std::vector<std::string> arrived() {
    std::vector<std::string> all;
    while (is_readable_now()) {
      std::array<std::byte, 100> bytes{};
      EXPECT_GE(::recv(peer_->fd(), bytes.data(), bytes.size(), MSG_DONTWAIT), 16);
      const auto bth = wire::Bth::parse(wire::BthView(bytes));
      const bool is_ack = bth.opcode == wire::Opcode::RC_ACKNOWLEDGE;
      const bool is_nak = is_ack && (std::to_integer<unsigned>(bytes[12]) & 0x60) == 0x60;
      all.push_back((is_nak   ? "nak "
                     : is_ack ? "ack "
                              : "send ") +
                    std::to_string(bth.psn.value()));
    }
    return all;
  }
  bool is_readable_now() const { return !is_quiet(peer_->fd()); }

  const wire::MacAddress mac_ = wire::MacAddress::from_u64(0x0200'0000'0001);
  const wire::Gid own_ = loopback_address(41);
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> device_ = fabric_.create_port("device");
  fabric::Recorder receiver_;
  util::Time now_{std::chrono::hours(1)};
  RoceLink link_{fabric_.create_port("sockets"), mac_, [this] { return now_; }};
  std::unique_ptr<RoceSocket> peer_;
  wire::IbHeader to_link_, to_peer_;
};

TEST_F(RoceAcknowledgementsTest, AnAcknowledgementLeavesAtTheEndOfTheNextTurn) {
  begin_turn(1);
  acknowledge(7);
  link_.settle();
  EXPECT_THAT(arrived(), IsEmpty());
  begin_turn(0);
  EXPECT_THAT(arrived(), IsEmpty());
  link_.settle();
  EXPECT_THAT(arrived(), ElementsAre("ack 7"));
}

TEST_F(RoceAcknowledgementsTest, TheNextRequestGoesFirst) {
  begin_turn(1);
  acknowledge(7);
  link_.settle();
  begin_turn(0);
  transmit(wire::Opcode::RC_SEND_ONLY, 100);
  EXPECT_THAT(arrived(), ElementsAre("send 100", "ack 7"));
  link_.settle();
  EXPECT_THAT(arrived(), IsEmpty());
}

// One message passes the kernel once, and the receiver takes both with one call.
TEST_F(RoceAcknowledgementsTest, ARequestAndTheAcknowledgementOfItsQpAreOneMessage) {
  const std::array<std::byte, 8> payload{};
  const auto& counters = link_.sockets().at(0)->counters();
  for (const std::uint32_t qpn : {1, 2}) {
    const auto before = counters.messages;
    begin_turn(2);
    acknowledge(6, 3);
    acknowledge(7, qpn);
    transmit(wire::Opcode::RC_SEND_ONLY, 100, 1, {}, payload);
    EXPECT_THAT(arrived(), qpn == 1 ? ElementsAre("send 100", "ack 7", "ack 6")
                                    : ElementsAre("send 100", "ack 6", "ack 7"));
    EXPECT_EQ(counters.messages - before, qpn == 1 ? 2u : 3u);
  }
}

// Only the last part of a message may be shorter, and none longer.
TEST_F(RoceAcknowledgementsTest, AnAcknowledgementThatIsLongerThanTheRequestIsAMessageOfItsOwn) {
  begin_turn(1);
  acknowledge(7);
  transmit(wire::Opcode::RC_SEND_ONLY, 100);
  EXPECT_THAT(arrived(), ElementsAre("send 100", "ack 7"));
  EXPECT_EQ(link_.sockets().at(0)->counters().messages, 2u);
}

TEST_F(RoceAcknowledgementsTest, WithoutAnEndOfTheTurnItLeavesWithTheOneAfterTheNext) {
  begin_turn(1);
  acknowledge(7);
  begin_turn(0);
  begin_turn(0);
  EXPECT_THAT(arrived(), ElementsAre("ack 7"));
}

TEST_F(RoceAcknowledgementsTest, ALaterOneOfTheQpReplacesIt) {
  begin_turn(3);
  acknowledge(7, 1);
  acknowledge(20, 2);
  acknowledge(8, 1);
  link_.flush();
  EXPECT_THAT(arrived(), ElementsAre("ack 8", "ack 20"));
  link_.flush();
  EXPECT_THAT(arrived(), IsEmpty());
}

TEST_F(RoceAcknowledgementsTest, ResponsesStayInOrder) {
  begin_turn(2);
  acknowledge(7);
  transmit(wire::Opcode::RC_ACKNOWLEDGE, 8, 1,
           wire::Aeth::nak(wire::Msn(1), wire::NakCode::REMOTE_ACCESS_ERROR));
  EXPECT_THAT(arrived(), ElementsAre("ack 7", "nak 8"));
}

TEST_F(RoceAcknowledgementsTest, OnlyAFewWait) {
  begin_turn(4);
  for (std::uint32_t qpn = 1; qpn != 6; ++qpn) acknowledge(qpn, qpn);
  EXPECT_THAT(arrived(), ElementsAre("ack 1", "ack 2", "ack 3", "ack 4", "ack 5"));
}

// A turn with many packets is long, and the peer may wait to send more.
TEST_F(RoceAcknowledgementsTest, NoneWaitsInATurnWithManyPackets) {
  begin_turn(5);
  acknowledge(7);
  EXPECT_THAT(arrived(), ElementsAre("ack 7"));
}

TEST_F(RoceAcknowledgementsTest, NoneWaitsInATurnWithoutPackets) {
  begin_turn(1);
  link_.settle();
  acknowledge(7);
  EXPECT_THAT(arrived(), ElementsAre("ack 7"));
}

// The data may be what could not be written.
TEST_F(RoceAcknowledgementsTest, NoneIsKeptWhileAFaultIsPending) {
  begin_turn(1);
  os::MemoryFaults::note();
  acknowledge(7);
  os::MemoryFaults::clear();
  link_.flush();
  EXPECT_THAT(arrived(), IsEmpty());
  EXPECT_EQ(link_.sockets().at(0)->counters().lost.fault, 1u);
}

}  // namespace
}  // namespace softhca::hub

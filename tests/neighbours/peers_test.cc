// Attacks of a peer over the network: a guest whose program sends and receives packets of RoCE v2
// as Ethernet frames, and so need not keep the rules of the transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/connectx/transport_domain.h"
#include "neighbours.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"

namespace softhca::neighbours {
namespace {

using driver::SendOpcode;
using driver::SendRequest;
using driver::connectx::FrameReceiver;
using driver::connectx::FrameSender;
using driver::connectx::QueuePair;

using PeerNeighbours = Neighbours;
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(PeerNeighbours);

/// The peer of one queue pair, which `hca` must have.
class RawPeer {
 public:
  RawPeer(const std::string& socket, LoopHca& victim)
      : hca_(socket, 6, kFrames * kFrameSize),
        domain_(must(driver::connectx::TransportDomain::create(hca_.hca()))),
        sender_(must(FrameSender::create(
            hca_.protection_domain(), *domain_,
            {.cq = hca_.cq(), .send = {.requests = 512, .pieces = 1, .inline_size = 80}}))),
        receive_cq_(must(driver::connectx::CompletionQueue::create(hca_.hca(), {.entries = 4096}))),
        receiver_(
            must(FrameReceiver::create(hca_.protection_domain(), *domain_,
                                       {.cq = *receive_cq_, .receive = {.requests = kFrames}}))) {
    address_.source_mac = wire::MacAddress::from(hca_.hca().mac().bytes);
    address_.destination_mac = wire::MacAddress::from(victim.hca().mac().bytes);
    address_.source_gid = wire::Gid::from(kGid.bytes);
    address_.destination_gid = wire::Gid::from(victim.gid().bytes);
    address_.udp_source_port = spec::infiniband::kUdpSourcePort;
    address_.hop_limit = 64;
    must(receiver_->take_all_frames());
    for (std::size_t i = 0; i != kFrames; ++i) give(i);
  }

  driver::connectx::RemoteQueuePair as_remote() {
    return {.qpn = 0x777, .psn = 0, .gid = kGid, .mac = hca_.hca().mac()};
  }
  /// Makes a packet for the victim's queue pair `qpn`. `opcode` need not be one that exists.
  std::vector<std::byte> packet(std::uint32_t qpn, std::uint8_t opcode, std::uint32_t psn,
                                const wire::Aeth& aeth = {}) const {
    // The size of an acknowledgement, and its other headers.
    wire::Frame frame;
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_ACKNOWLEDGE;
    bth.dest_qp = wire::Qpn(qpn);
    bth.psn = wire::Psn(psn);
    wire::ExtHeaders ext;
    ext.aeth = aeth;
    wire::IbHeader(address_).emit(bth, ext, 0, frame);
    constexpr std::size_t kBth = 14 + 20 + 8;  // Ethernet, IPv4 and UDP before it
    frame.mutable_head()[kBth] = std::byte{opcode};
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    return bytes;
  }
  /// Sends the packet as often as there is room for it.
  void flood(std::span<const std::byte> packet) {
    std::array<driver::Completion, 512> done;
    (void)hca_.cq().poll(done);
    while (sender_->post({.header = packet}) == driver::PostStatus::kOk) {
    }
  }
  void send(std::span<const std::byte> packet) {
    std::array<driver::Completion, 16> done;
    (void)hca_.cq().poll(done);
    ASSERT_EQ(sender_->post({.header = packet}), driver::PostStatus::kOk);
  }
  /// Calls `take(packet, payload)` for each packet that has arrived.
  template <class Take>
  void receive(Take&& take) {
    std::array<driver::Completion, 64> done;
    const auto count = receive_cq_->poll(done);
    for (const auto& one : std::span(done).first(count)) {
      const auto bytes = hca_.memory().subspan(one.id * kFrameSize, one.byte_count);
      if (const auto parsed = wire::IbPacket::parse(wire::Frame::from_bytes(bytes))) {
        take(*parsed, std::span<const std::byte>(
                          bytes.subspan(parsed->payload_offset, parsed->payload_size)));
      }
      give(one.id);
    }
  }

 private:
  static constexpr std::size_t kFrames = 1024, kFrameSize = 2048;
  /// No address of the HCA, so that its transport leaves the frames to the program.
  static inline const driver::Gid kGid = driver::Gid::from_ipv4(10, 0, 9, 9);

  void give(std::size_t frame) {
    const auto piece = hca_.piece(frame * kFrameSize, kFrameSize);
    ASSERT_EQ(receiver_->post({.id = frame, .pieces = {&piece, 1}}), driver::PostStatus::kOk);
  }

  LoopHca hca_;
  std::unique_ptr<driver::connectx::TransportDomain> domain_;
  std::unique_ptr<FrameSender> sender_;
  std::unique_ptr<driver::connectx::CompletionQueue> receive_cq_;
  std::unique_ptr<FrameReceiver> receiver_;
  wire::IbAddress address_;
};

// A NAK acknowledges what is before its PSN. It may arrive while the frames of that still wait in
// the fabric: the peer sends it before it has seen the request.
TEST_P(PeerNeighbours, NaksThatComeBeforeTheFramesAreReadGetNoMemoryOfTheServer) {
  constexpr std::byte kFill{0x5a};
  constexpr std::uint32_t kPackets = 4;  // of the first message
  std::uint64_t sent = 0, foreign = 0;
  {
    LoopHca loop(hostile(), 2, 4096);
    RawPeer peer(socket(kThird), loop);
    const auto qp = must(
        QueuePair::create(loop.protection_domain(), {.send_cq = loop.cq(),
                                                     .receive_cq = loop.cq(),
                                                     .send = {.requests = 4, .inline_size = 900}}));
    const std::vector<std::byte> bytes(900, kFill);
    const auto again =
        peer.packet(qp->qpn(), static_cast<std::uint8_t>(wire::Opcode::RC_ACKNOWLEDGE), kPackets,
                    wire::Aeth::nak({}, wire::NakCode::PSN_SEQUENCE_ERROR));
    std::array<SendRequest, 2> messages;
    for (auto& message : messages) {
      message = {.opcode = SendOpcode::kRdmaWrite, .inline_data = bytes, .rkey = 1};
    }
    messages[1].inline_data = std::span(bytes).first(8);
    for (int round = 0; round != 300; ++round) {
      must(qp->connect(peer.as_remote(), {.path_mtu = 256}));
      peer.flood(again);
      auto status = driver::PostStatus::kOk;
      ASSERT_EQ(qp->post_send(messages, status), 2u);
      std::array<driver::Completion, 2> done;
      std::size_t count = 0;
      for (const auto end = util::monotonic_now() + 20s; count != 2;) {
        ASSERT_LT(util::monotonic_now(), end) << "round " << round;
        peer.flood(again);
        count += loop.cq().poll(std::span(done).subspan(count));
        peer.receive([&](const wire::IbPacket&, std::span<const std::byte> payload) {
          sent += payload.size();
          foreign += payload.size() - static_cast<std::size_t>(std::ranges::count(payload, kFill));
        });
      }
      EXPECT_EQ(done[0].status, driver::WorkStatus::kSuccess) << "the NAK acknowledges it";
      must(qp->to_reset());
    }
  }
  EXPECT_GT(sent, 0u);
  EXPECT_EQ(foreign, 0u) << "bytes that no message has";
  expect_unharmed();
}

// IBTA 9.9.3: the NAK of an invalid request.
TEST_P(PeerNeighbours, EachReservedOpcodeIsRefused) {
  {
    LoopHca loop(hostile(), 2, 4096);
    RawPeer peer(socket(kThird), loop);
    const auto qp = loop.make_qp();
    for (const unsigned opcode : {0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}) {
      must(qp->connect(peer.as_remote(), {.path_mtu = 256}));
      peer.send(peer.packet(qp->qpn(), static_cast<std::uint8_t>(opcode), 0));
      bool refused = false;
      for (const auto end = util::monotonic_now() + 20s; !refused && util::monotonic_now() < end;) {
        peer.receive([&](const wire::IbPacket& packet, std::span<const std::byte>) {
          refused = packet.ext.aeth.type == wire::AethType::NAK &&
                    packet.ext.aeth.nak_code() == wire::NakCode::INVALID_REQUEST;
        });
      }
      EXPECT_TRUE(refused) << std::hex << opcode;
      must(qp->to_reset());
    }
  }
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours

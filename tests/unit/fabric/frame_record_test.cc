// Frames as records between two processes (fabric/frame_record.h).
#include "fabric/frame_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "fabric/ring_pair.h"
#include "fabric/switch.h"
#include "recorder.h"
#include "wire/frame_bytes.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::fabric {
namespace {

using wire::Opcode;

constexpr std::uint16_t kRecordMtu = 4096;
constexpr std::size_t kRecordCapacity = std::size_t{1} << 20;

using Bytes = std::vector<std::byte>;

class FrameRecordTest : public testing::Test {
 protected:
  FrameRecordTest() {
    std::uint8_t n = 0;
    for (auto& byte : memory_) byte = std::byte(n += 37);
  }
  /// A frame that carries the begin of the payload. With several packets it is a train.
  wire::Frame frame_of(Opcode opcode, std::size_t payload, unsigned packets = 1,
                       bool ack_req_at_end = false) {
    wire::IbAddress address;
    address.source_mac = wire::MacAddress::from_u64(kA);
    address.destination_mac = wire::MacAddress::from_u64(kB);
    address.source_gid = wire::Gid::from_ipv4(0x0a000001);
    address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
    address.udp_source_port = 0xc000;
    wire::Bth bth;
    bth.opcode = opcode;
    bth.psn = wire::Psn(1000);
    bth.dest_qp = wire::Qpn(7);
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, payload, frame);
    EXPECT_TRUE(frame.add_segment(std::span(memory_).first(packets * payload)));
    if (packets != 1) {
      const auto first = opcode == Opcode::RC_RDMA_WRITE_FIRST;
      frame.set_train({static_cast<std::uint16_t>(packets), static_cast<std::uint16_t>(payload),
                       static_cast<std::uint8_t>(first ? wire::RethLayout::kSize : 0),
                       ack_req_at_end});
    }
    return frame;
  }
  /// The packets as bytes.
  static std::vector<Bytes> packets_of(const wire::Frame& frame) {
    std::vector<Bytes> all;
    wire::for_each_packet(frame,
                          [&](const wire::Frame& packet) { all.push_back(bytes_of(packet)); });
    return all;
  }
  /// The frame that the reader gets, or nothing if it refuses the record.
  std::optional<wire::Frame> cross(const wire::Frame& frame,
                                   RecordForm form = RecordForm::kProcess) {
    EXPECT_TRUE(write_record(frame, form, producer_));
    producer_.publish();
    return read(form);
  }
  std::optional<wire::Frame> read(RecordForm form = RecordForm::kProcess) {
    const auto bytes = consumer_.next();
    wire::Frame frame;
    if (!read_record(bytes, consumer_.note(), form, frame)) return std::nullopt;
    return frame;
  }
  /// Writes `bytes` with a note of these parts, as a process that writes anything might.
  std::optional<wire::Frame> cross_bytes(const Bytes& bytes, std::uint16_t payload,
                                         std::uint8_t packets, std::uint8_t kind) {
    const std::uint32_t note = payload | packets << 16u | kind << 24u;
    std::ranges::copy(bytes, producer_.reserve(bytes.size(), note).begin());
    producer_.publish();
    return read();
  }
  static Bytes bytes_of_train(const wire::Frame& frame) {
    Bytes bytes(frame.size_of_all());
    bytes.resize(frame.head_size() + frame.packets() * std::size_t{frame.train().payload});
    frame.copy_range(0, bytes);
    return bytes;
  }

  static constexpr std::uint8_t kWhole = 0, kWithoutIcrc = 1, kTrain = 2;

  Bytes memory_ = Bytes(std::size_t{200} * kRecordMtu);
  os::SharedRing ring_ = os::SharedRing::create(kRecordCapacity).value();
  os::RingProducer producer_{ring_};
  os::RingConsumer consumer_{ring_};
};

TEST_F(FrameRecordTest, ATrainArrivesAsOne) {
  for (const auto opcode : {Opcode::RC_RDMA_WRITE_FIRST, Opcode::RC_RDMA_WRITE_MIDDLE,
                            Opcode::UC_SEND_FIRST, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE}) {
    for (const bool ack_req_at_end : {false, true}) {
      const auto sent = frame_of(opcode, kRecordMtu, 16, ack_req_at_end);
      const auto arrived = cross(sent);
      ASSERT_TRUE(arrived);
      EXPECT_EQ(arrived->packets(), 16u);
      EXPECT_EQ(arrived->train(), sent.train());
      EXPECT_EQ(packets_of(*arrived), packets_of(sent));
    }
  }
}

TEST_F(FrameRecordTest, DeferredCrcsStayDeferred) {
  for (const std::size_t payload : {0u, 1u, 3u, 8u, 200u, 4096u}) {
    const auto sent = frame_of(Opcode::RC_SEND_ONLY, payload);
    const auto arrived = cross(sent);
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->icrc(), wire::Frame::Icrc::kDeferred);
    EXPECT_EQ(bytes_of(*arrived), bytes_of(sent)) << payload;
  }
}

TEST_F(FrameRecordTest, CrcsThatAreThereStayThere) {
  const auto bytes = bytes_of(frame_of(Opcode::RC_SEND_ONLY, 100));
  const auto arrived = cross(wire::Frame::from_bytes(bytes));
  ASSERT_TRUE(arrived);
  EXPECT_NE(arrived->icrc(), wire::Frame::Icrc::kDeferred);
  EXPECT_EQ(bytes_of(*arrived), bytes);
}

TEST_F(FrameRecordTest, InTheWireFormFramesAreAsOnTheWire) {
  const auto sent = frame_of(Opcode::RC_SEND_ONLY, 100);
  const auto arrived = cross(sent, RecordForm::kWire);
  ASSERT_TRUE(arrived);
  EXPECT_NE(arrived->icrc(), wire::Frame::Icrc::kDeferred);
  EXPECT_EQ(bytes_of(*arrived), bytes_of(sent));
}

TEST_F(FrameRecordTest, InTheWireFormNotesAreIgnored) {
  const auto train = bytes_of_train(frame_of(Opcode::RC_RDMA_WRITE_MIDDLE, kRecordMtu, 4));
  const std::uint32_t note = kRecordMtu | 4u << 16u | kTrain << 24u;
  std::ranges::copy(train, producer_.reserve(train.size(), note).begin());
  producer_.publish();
  const auto arrived = read(RecordForm::kWire);
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->packets(), 1u);
}

TEST_F(FrameRecordTest, AMalformedTrainIsRefused) {
  const auto train = frame_of(Opcode::RC_RDMA_WRITE_MIDDLE, kRecordMtu, 4);
  const auto bytes = bytes_of_train(train);
  const auto head = static_cast<std::uint16_t>(train.head_size());
  ASSERT_TRUE(cross_bytes(bytes, kRecordMtu, 4, kTrain));
  EXPECT_FALSE(cross_bytes(bytes, kRecordMtu, 4, 4)) << "no such kind";
  EXPECT_FALSE(cross_bytes(bytes, kRecordMtu, 5, kTrain)) << "more than there is";
  EXPECT_FALSE(cross_bytes(bytes, kRecordMtu, 3, kTrain)) << "a head of more than a packet";
  EXPECT_FALSE(cross_bytes(bytes, kRecordMtu / 2, 8, kTrain)) << "packets that are longer inside";
  EXPECT_FALSE(cross_bytes(bytes, 0, 4, kTrain)) << "empty packets";
  EXPECT_FALSE(cross_bytes(bytes, kRecordMtu, 0, kTrain)) << "no packet";
  const Bytes short_one(bytes.begin(), bytes.begin() + head + kRecordMtu);
  EXPECT_FALSE(cross_bytes(short_one, kRecordMtu, 1, kTrain)) << "one packet";
  auto with_more_head = bytes;
  with_more_head.insert(with_more_head.begin() + head, 4, std::byte{0});
  EXPECT_FALSE(cross_bytes(with_more_head, kRecordMtu, 4, kTrain))
      << "bytes between head and payload";
  auto odd = bytes_of_train(frame_of(Opcode::RC_RDMA_WRITE_MIDDLE, 512, 4));
  ASSERT_TRUE(cross_bytes(odd, 512, 4, kTrain));
  for (const auto opcode : {Opcode::RC_RDMA_WRITE_LAST, Opcode::RC_SEND_ONLY, Opcode::UD_SEND_ONLY,
                            Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_ACKNOWLEDGE}) {
    EXPECT_FALSE(
        cross_bytes(bytes_of_train(frame_of(opcode, kRecordMtu, 4)), kRecordMtu, 4, kTrain))
        << wire::info(opcode).name;
  }
  auto other = bytes;
  std::ranges::fill(std::span(other).subspan(12, 2), std::byte{0x88});
  EXPECT_FALSE(cross_bytes(other, kRecordMtu, 4, kTrain)) << "no packet of the transport";
}

TEST_F(FrameRecordTest, APathMtuIsOneOfFive) {
  for (const std::uint16_t payload : {128, 768, 8192}) {
    const auto bytes = bytes_of_train(frame_of(Opcode::RC_RDMA_WRITE_MIDDLE, payload, 4));
    EXPECT_FALSE(cross_bytes(bytes, payload, 4, kTrain)) << payload;
  }
  for (const std::uint16_t payload : {256, 512, 1024, 2048, 4096}) {
    const auto bytes = bytes_of_train(frame_of(Opcode::RC_RDMA_WRITE_MIDDLE, payload, 4));
    EXPECT_TRUE(cross_bytes(bytes, payload, 4, kTrain)) << payload;
  }
}

TEST_F(FrameRecordTest, AFrameThatCanHaveNoCrcIsRefusedWithoutOne) {
  EXPECT_FALSE(cross_bytes(Bytes(5), 0, 0, kWithoutIcrc));
  EXPECT_FALSE(cross_bytes(Bytes(100), 0, 0, kWithoutIcrc));
  EXPECT_TRUE(cross_bytes(Bytes(5), 0, 0, kWhole)) << "the switch knows what to do with it";
}

/// Receives trains, and keeps the bytes of their packets.
struct RecordStation final : Receiver {
  void handle_frame(const wire::Frame& frame) override {
    lengths.push_back(frame.packets());
    wire::for_each_packet(
        frame, [this](const wire::Frame& packet) { packets.push_back(bytes_of(packet)); });
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  bool takes_trains() const override { return true; }

  std::vector<unsigned> lengths;
  std::vector<Bytes> packets;
};

TEST_F(FrameRecordTest, ATrainThatIsLongerThanARecordCrossesInPieces) {
  auto there = os::SharedRing::create(kRecordCapacity).value();
  auto back = os::SharedRing::create(kRecordCapacity).value();
  const auto attach = [](const os::SharedRing& ring) {
    return os::SharedRing::attach(ring.fd()).value();
  };
  RingPair ours(attach(there), attach(back), RecordForm::kProcess);
  RingPair theirs(attach(back), attach(there), RecordForm::kProcess);
  Switch fabric;
  const auto link = fabric.create_port("link"), port = fabric.create_port("station");
  RecordStation station;
  port->set_receiver(&station);
  // Teaches the switch where the station is.
  RecordStation nobody;
  link->set_receiver(&nobody);
  wire::Frame hello;
  wire::Ethernet{wire::MacAddress::from_u64(kA), wire::MacAddress::from_u64(kB),
                 wire::EtherType{0x88b5}}
      .emit(util::MutableView<wire::EthernetLayout>(hello.resize_head(14)));
  port->transmit(hello);
  fabric.deliver(1);

  const auto single = frame_of(Opcode::RC_SEND_ONLY, 8);
  const auto train = frame_of(Opcode::RC_RDMA_WRITE_FIRST, kRecordMtu, 100, true);
  ours.send(single);
  ours.send(train);
  EXPECT_EQ(ours.counters().sent, 101u);
  EXPECT_EQ(theirs.receive(*link, 20), 33u) << "16 packets of a train are taken together";
  EXPECT_EQ(theirs.receive(*link, 1000), 68u);
  fabric.deliver(1000);
  EXPECT_THAT(station.lengths, testing::ElementsAre(1, 16, 16, 16, 16, 16, 16, 4));
  auto expected = packets_of(train);
  expected.insert(expected.begin(), bytes_of(single));
  EXPECT_EQ(station.packets, expected);
}

}  // namespace
}  // namespace softhca::fabric

// A train represents packets. Cutting it must give these packets, byte for byte.

#include "wire/train.h"

#include <gtest/gtest.h>

#include <vector>

#include "frame_bytes.h"
#include "wire/ib_header.h"

namespace softhca::wire {
namespace {

constexpr std::uint16_t kMtu = 256;

IbAddress some_address() {
  IbAddress address;
  address.destination_mac = MacAddress::from_u64(0x020000000002);
  address.source_mac = MacAddress::from_u64(0x020000000001);
  address.source_gid = Gid::from_ipv4(0x0a000001);
  address.destination_gid = Gid::from_ipv4(0x0a000002);
  address.udp_source_port = 0xc000;
  return address;
}

class Train : public testing::Test {
 protected:
  Train() {
    for (std::size_t i = 0; i != memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 37);
  }
  /// Packet `i` of a WRITE, as it would be sent alone. The first `count` packets travel together.
  Frame packet(unsigned i, unsigned count, bool ack_req_at_end) {
    auto frame = headers(i, i + 1 == count && ack_req_at_end);
    EXPECT_TRUE(frame.add_segment(std::span(memory_).subspan(i * kMtu, kMtu)));
    return frame;
  }
  Frame train(unsigned count, bool ack_req_at_end) {
    auto frame = headers(0, false);
    frame.set_train({static_cast<std::uint16_t>(count), kMtu, RethLayout::kSize, ack_req_at_end});
    // Segments that do not match packet boundaries.
    for (std::size_t at = 0; at < count * kMtu; at += 700) {
      const auto n = std::min<std::size_t>(700, count * kMtu - at);
      pieces_.emplace_back(memory_.begin() + static_cast<std::ptrdiff_t>(at),
                           memory_.begin() + static_cast<std::ptrdiff_t>(at + n));
      EXPECT_TRUE(frame.add_segment(pieces_.back()));
    }
    return frame;
  }

 private:
  Frame headers(unsigned i, bool ack_req) {
    Bth bth;
    bth.opcode = i == 0 ? Opcode::RC_RDMA_WRITE_FIRST : Opcode::RC_RDMA_WRITE_MIDDLE;
    bth.psn = Psn(0xfffffe + i);  // PSNs that wrap around
    bth.dest_qp = Qpn(5);
    bth.ack_req = ack_req;
    ExtHeaders ext;
    ext.reth = {0x1000, RKey(7), 100'000};
    Frame frame;
    IbHeader(some_address()).emit(bth, ext, kMtu, frame);
    return frame;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(32 * kMtu);
  std::vector<std::vector<std::byte>> pieces_;
};

TEST_F(Train, IsCutIntoThePacketsThatItStandsFor) {
  for (const bool ack_req : {false, true}) {
    const auto whole = train(9, ack_req);
    unsigned i = 0;
    for_each_packet(whole, [&](const Frame& cut) {
      EXPECT_EQ(cut.packets(), 1u);
      EXPECT_EQ(bytes_of(cut), bytes_of(packet(i, 9, ack_req))) << "packet " << i;
      ++i;
    });
    EXPECT_EQ(i, 9u);
  }
}

TEST_F(Train, ItsPartsAreCutIntoTheSamePackets) {
  const auto whole = train(9, true);
  for (unsigned first = 0; first != 9; ++first) {
    for (unsigned count = 1; first + count <= 9; ++count) {
      Frame kept;
      part(whole, first, count, kept);
      EXPECT_EQ(kept.packets(), count);
      unsigned i = first;
      for_each_packet(kept, [&](const Frame& cut) {
        EXPECT_EQ(bytes_of(cut), bytes_of(packet(i, 9, true))) << "packet " << i;
        ++i;
      });
    }
  }
}

TEST_F(Train, HasTheSizesOfItsPackets) {
  const auto whole = train(9, true);
  std::size_t all = 0;
  for_each_packet(whole, [&](const Frame& cut) { all += cut.size(); });
  EXPECT_EQ(whole.size_of_all(), all);
  EXPECT_EQ(whole.size(), packet(0, 9, true).size());
}

TEST_F(Train, IsReadAsThePacketsThatFollowEachOther) {
  const auto whole = train(9, true);
  auto parsed = IbPacket::parse(whole);
  ASSERT_TRUE(parsed);
  for (unsigned i = 0; i != 9; ++i) {
    const auto expected = IbPacket::parse(packet(i, 9, true));
    ASSERT_TRUE(expected);
    EXPECT_EQ(parsed->bth, expected->bth) << "packet " << i;
    EXPECT_EQ(parsed->payload_size, expected->payload_size);
    if (i != 8) advance(*parsed, whole, 1, 8 - i);
  }
}

}  // namespace
}  // namespace softhca::wire

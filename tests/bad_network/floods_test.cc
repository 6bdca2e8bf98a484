// Peers that send frames without end: a device does not slow down for its other peers, and neither
// its memory nor its log grows.
#include <malloc.h>

#include "strangers.h"
#include "util/log.h"

namespace softhca::bad_network {
namespace {

using driver::verbs::QpType;
using wire::Opcode;

constexpr unsigned kPackets = 100'000, kPerTurn = 100;

class FloodsTest : public StrangersTest {
 protected:
  /// One of the packets that the second host does not want.
  std::vector<std::byte> junk(unsigned i) const {
    auto forged = genuine(i % 2 == 0 ? Opcode::RC_SEND_ONLY : Opcode::RC_RDMA_WRITE_ONLY);
    switch (i % 5) {
      case 0:  // of no QP
        forged.bth.dest_qp = wire::Qpn(0x800000 + i);
        break;
      case 1:  // of another peer
        forged.address.source_gid = wire::Gid::from_ipv4(10, 9, 9, static_cast<std::uint8_t>(i));
        break;
      case 2:  // of another partition
        forged.bth.pkey = 0x8123;
        break;
      case 3: {  // corrupt
        auto bytes = forged.bytes();
        bytes.back() ^= std::byte{1};
        return bytes;
      }
      default: {  // no packet
        auto bytes = forged.bytes();
        bytes.resize(50);
        return bytes;
      }
    }
    return forged.bytes();
  }
  /// Turns of all devices until the peer's message of 4 KiB is complete. `flood`: frames in each.
  std::uint64_t turns_of_a_message(std::span<const std::vector<std::byte>> flood) {
    const auto piece = a_->region.piece(0, 4096);
    EXPECT_EQ(a_->qp.post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                .pieces = {&piece, 1},
                                .remote_address = b_->region.address(),
                                .rkey = b_->region.rkey()}),
              driver::PostStatus::kOk);
    const auto before = fleet_.turns();
    for (int i = 0; i != 100; ++i) {
      for (const auto& bytes : flood) fleet_.inject(wire::Frame::from_bytes(bytes));
      fleet_.turn();
      driver::Completion done;
      if (fleet_.poll(a_->cq, {&done, 1}) == 0) continue;
      EXPECT_EQ(done.status, driver::WorkStatus::kSuccess);
      return fleet_.turns() - before;
    }
    ADD_FAILURE() << "the message does not arrive";
    return 0;
  }
};

TEST_F(FloodsTest, AMessageTakesAsManyTurnsAsWithoutAFlood) {
  unsigned lines = 0;
  util::set_log_level(util::LogLevel::kWarning);
  util::set_log_sink([&](auto, auto) { ++lines; });
  make(QpType::kRc);
  std::vector<std::vector<std::byte>> flood;
  for (unsigned i = 0; i != kPerTurn; ++i) flood.push_back(junk(i));
  for (int i = 0; i != 8; ++i) (void)turns_of_a_message(flood);  // fills caches
  const auto quiet = turns_of_a_message({});
  ASSERT_NE(quiet, 0u) << "a message does not arrive, and the loop below would not end";
  const auto heap = ::mallinfo2().uordblks;
  for (std::uint64_t sent = 0; sent < kPackets; sent += quiet * kPerTurn) {
    ASSERT_EQ(turns_of_a_message(flood), quiet);
  }
  EXPECT_LT(::mallinfo2().uordblks, heap + (64 << 10));
  util::set_log_sink(nullptr);
  EXPECT_LE(lines, 32u) << "as many as a limiter lets pass, for each reason";
}

}  // namespace
}  // namespace softhca::bad_network

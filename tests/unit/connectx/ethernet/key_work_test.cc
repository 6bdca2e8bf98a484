// Frames through keys of many pieces. A guest makes a key whose pieces have a byte each, so the
// work of a frame is that of its bytes: a turn has room for little more than one.
#include <gtest/gtest.h>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/network_port.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

constexpr std::uint32_t kPiecesKey = 0x7700;
constexpr std::uint32_t kPieces = 20'100;
constexpr std::int64_t kPieceWork = 70;
/// Most work of an SQ before others have their turn: the head of a frame, then parts of 256 bytes
/// until 50,000 units are spent, all in pieces of one byte behind three levels of keys.
constexpr std::int64_t kSqWorkMax = 120'000;

class EthernetKeyWork : public ::testing::Test {
 protected:
  explicit EthernetKeyWork(bool on_switch = false)
      : host({.on_switch = on_switch}), cqn(host.create_cq(8)), memory(host.allocate(2 * kPieces)) {
    add_key(kPiecesKey, EthernetHost::kKey, memory, 2);
  }

  /// Adds a key of pieces of one byte, which are `stride` bytes apart behind `below`.
  void add_key(std::uint32_t number, std::uint32_t below, std::uint64_t address,
               std::uint64_t stride) {
    rdma::MemoryKey::Attributes key;
    key.key = rdma::MKey(number);
    key.pd = rdma::Pd(host.pd);
    key.access = rdma::kLocalRead | rdma::kLocalWrite;
    key.length = kPieces;
    for (std::uint32_t i = 0; i != kPieces; ++i) {
      key.indirect.push_back({address + stride * i, 1, rdma::MKey(below)});
    }
    host.device.driver().memory_keys().table().insert(key);
  }
  /// Two more levels of such keys above kPiecesKey. Returns the topmost.
  std::uint32_t add_levels() {
    add_key(kPiecesKey + 0x100, kPiecesKey, 0, 1);
    add_key(kPiecesKey + 0x200, kPiecesKey + 0x100, 0, 1);
    return kPiecesKey + 0x200;
  }
  /// Writes `bytes` to the first pieces of the key.
  void place(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i != bytes.size(); ++i) *host.at(memory + 2 * i) = bytes[i];
  }
  /// Posts a WQE that sends `frame`, all but `inlined` bytes through the key.
  void post(std::uint32_t sqn, std::span<const std::byte> frame, std::size_t inlined,
            std::uint32_t key = kPiecesKey) {
    const auto rest = frame.subspan(inlined);
    place(rest);
    host.write_wqe(sqn, Wqe(wqe_opcode::SEND, sqn, host.posted(sqn))
                            .eth(frame.first(inlined))
                            .pointer(key, 0, static_cast<std::uint32_t>(rest.size()))
                            .finish());
  }
  /// Posts a WQE that sends packets of `mss` bytes behind `key`.
  void post_large(std::uint32_t sqn, std::uint32_t key, std::uint64_t address, std::uint16_t mss,
                  std::uint32_t size) {
    host.write_wqe(sqn, Wqe(wqe_opcode::LSO, sqn, host.posted(sqn))
                            .eth(make_frame({.payload = 0}), true, mss)
                            .pointer(key, address, size)
                            .finish());
  }
  /// Rings the doorbell and runs the device once. Returns its work.
  std::int64_t turn(std::uint32_t sqn) {
    const auto before = host.device.work_done();
    host.ring_send(sqn);
    host.device.run(host.device.now());
    return host.device.work_done() - before;
  }
  /// The same, until nothing is left to do.
  std::int64_t all_turns(std::uint32_t sqn) {
    const auto before = host.device.work_done();
    host.ring_send(sqn);
    host.run();
    return host.device.work_done() - before;
  }
  /// An RQ with WQEs of `size` bytes through `key`.
  std::uint32_t create_scattering_rq(unsigned log_size, std::uint32_t size,
                                     std::uint32_t key = kPiecesKey) {
    const auto rqn = host.create_rq(cqn, log_size, 4);
    for (unsigned i = 0; i != 1u << log_size; ++i) {
      host.post_receive_list(rqn, {{0, size}});
      util::store_be32(host.receive_wqe(rqn, i) + 4, key);
    }
    return rqn;
  }
  /// Steers all frames of `type` to `destinations`.
  void steer(flow_table_type type, const std::vector<EthernetHost::Destination>& destinations) {
    host.table_type = type;
    const auto table = host.create_table(0, 0);
    EXPECT_TRUE(host.set_flow(table, host.create_group(table, 0, 0), 0, destinations).ok());
    host.set_root(table);
  }
  std::uint64_t discards() {
    return host.device.driver().network_port().counters().all_received_discards();
  }

  EthernetHost host;
  std::uint32_t cqn;
  std::uint64_t memory;
};

TEST_F(EthernetKeyWork, FramesThatUseUpATurnAreSentInTheNextOnes) {
  const auto sqn = host.create_sq(cqn);
  const auto frame = make_frame({.payload = 380});
  const auto key = add_levels();
  for (int i = 0; i != 8; ++i) post(sqn, frame, 18, key);
  EXPECT_LT(turn(sqn), pcie::Function::kRunWork + kSqWorkMax);
  EXPECT_EQ(host.port.sent.size(), 3u);
  host.run();
  ASSERT_EQ(host.port.sent.size(), 8u);
  for (const auto& sent : host.port.sent) EXPECT_EQ(sent, frame);
  for (std::uint16_t i = 0; i != 8; ++i) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    EXPECT_EQ(util::View<cqe64_requester>(cqe).get(cqe64_requester::wqe_counter), i);
  }
}

TEST_F(EthernetKeyWork, AFrameBehindThreeLevelsOfKeysIsGatheredOverTurns) {
  host.device.driver().network_port().state().set_mtu(NetworkPort::kMaxMtu);
  const auto sqn = host.create_sq(cqn);
  const auto frame = make_frame({.payload = 9'900});
  post(sqn, frame, 18, add_levels());
  std::int64_t work = 0;
  for (int turns = 0; turns != 50 && host.port.sent.empty(); ++turns) {
    const auto one = turn(sqn);
    EXPECT_LT(one, pcie::Function::kRunWork + kSqWorkMax);
    work += one;
  }
  EXPECT_GE(work, 3 * static_cast<std::int64_t>(frame.size() - 18) * kPieceWork);
  EXPECT_EQ(host.device.driver().network_port().counters().transmit_errors.packets, 0u);
  host.run();
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(EthernetKeyWork, OtherQueuesSendWhileAFrameIsGathered) {
  host.device.driver().network_port().state().set_mtu(NetworkPort::kMaxMtu);
  const auto slow = host.create_sq(cqn);
  const auto other = host.create_sq(cqn);
  const auto long_frame = make_frame({.payload = 9'900});
  const auto short_frame = make_frame({.payload = 200});
  post(slow, long_frame, 18);
  host.write_wqe(other, Wqe(wqe_opcode::SEND, other, 0).eth(short_frame).finish());
  host.ring_send(slow);
  (void)turn(other);
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], short_frame);
  host.run();
  ASSERT_EQ(host.port.sent.size(), 2u);
  EXPECT_EQ(host.port.sent[1], long_frame);
}

TEST_F(EthernetKeyWork, PacketsOfALargeSendAreGatheredOverTurns) {
  const auto sqn = host.create_sq(cqn);
  const auto headers = header_size({});
  auto expected = make_frame({.payload = 2'800});
  expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(headers));
  place(expected);
  post_large(sqn, kPiecesKey, 0, 1'400, 2'800);
  EXPECT_GE(all_turns(sqn), 2'800 * kPieceWork);
  ASSERT_EQ(host.port.sent.size(), 2u);
  Bytes sent;
  for (const auto& packet : host.port.sent) {
    ASSERT_EQ(packet.size(), headers + 1'400);
    sent.insert(sent.end(), packet.begin() + static_cast<std::ptrdiff_t>(headers), packet.end());
  }
  EXPECT_EQ(sent, expected);
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(EthernetKeyWork, AKeyThatGoesWhileAFrameIsGatheredFailsItsWqe) {
  host.device.driver().network_port().state().set_mtu(NetworkPort::kMaxMtu);
  const auto sqn = host.create_sq(cqn);
  post(sqn, make_frame({.payload = 9'900}), 18);
  (void)turn(sqn);
  ASSERT_TRUE(host.poll(cqn).empty());
  ASSERT_TRUE(host.device.driver().memory_keys().table().erase_index(kPiecesKey >> 8));
  host.run();
  EXPECT_TRUE(host.port.sent.empty());
  const auto cqe = host.poll(cqn);
  ASSERT_FALSE(cqe.empty());
  EXPECT_EQ(util::View<cqe_error>(cqe).get(cqe_error::syndrome),
            static_cast<unsigned>(cqe_syndrome::LOCAL_PROTECTION_ERROR));
}

TEST_F(EthernetKeyWork, AFrameIsGatheredInOneWalk) {
  // With 300 bytes, headers are behind the frame's head too.
  for (const std::size_t inlined : {18u, 300u}) {
    const auto sqn = host.create_sq(cqn);
    const auto frame = make_frame({.payload = 1000});
    const auto one = static_cast<std::int64_t>(frame.size() - inlined) * kPieceWork;
    host.port.sent.clear();
    post(sqn, frame, inlined);
    const auto work = all_turns(sqn);
    EXPECT_GE(work, one);
    EXPECT_LT(work, one + 20'000);
    ASSERT_EQ(host.port.sent.size(), 1u);
    EXPECT_EQ(host.port.sent[0], frame) << inlined;
  }
}

// PMTU: max_mtu. The port drops the frame, and the SQ completes its WQE.
TEST_F(EthernetKeyWork, AFrameBeyondEveryMtuIsNotRead) {
  for (const std::size_t inlined : {18u, 300u}) {
    const auto sqn = host.create_sq(cqn);
    post(sqn, make_frame({.payload = 20'000}), inlined);
    EXPECT_LT(all_turns(sqn), 50'000);
    EXPECT_FALSE(host.poll(cqn).empty());
  }
  const auto sqn = host.create_sq(cqn);
  post_large(sqn, kPiecesKey, 0, 10'000, 20'000);
  EXPECT_LT(all_turns(sqn), 50'000);
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(host.device.driver().network_port().counters().transmit_errors.packets, 4u);
}

TEST_F(EthernetKeyWork, TheKeysOfAFrameBeyondEveryMtuAreChecked) {
  const auto sqn = host.create_sq(cqn);
  const auto frame = make_frame({.payload = 20'000});
  host.post_send(sqn, Wqe(wqe_opcode::SEND, sqn, 0)
                          .eth(std::span(frame).first(18))
                          .pointer(EthernetHost::kKey, memory, 1'000)
                          .pointer(0x9900, 0, 19'000)
                          .finish());
  const auto cqe = host.poll(cqn);
  ASSERT_FALSE(cqe.empty());
  const util::View<cqe_error> view(cqe);
  EXPECT_EQ(view.get(cqe_error::syndrome),
            static_cast<unsigned>(cqe_syndrome::LOCAL_PROTECTION_ERROR));
  EXPECT_EQ(view.get(cqe_error::hw_error_syndrome),
            static_cast<unsigned>(rdma::Reason::kKeyUnknown));
}

// Any station may send a frame of the largest MTU.
TEST_F(EthernetKeyWork, AFrameThatCostsTooMuchToReceiveIsDroppedAndItsWqeServesTheNext) {
  host.device.driver().network_port().state().set_mtu(NetworkPort::kMaxMtu);
  const auto rqn = create_scattering_rq(4, 10'000, add_levels());
  steer(flow_table_type::NIC_RX, {{destination_type::TIR, host.create_direct_tir(rqn)}});
  const auto before = host.device.work_done();
  host.arrive(make_frame({.payload = 9'900}));
  EXPECT_LT(host.device.work_done() - before, 1'200'000);
  EXPECT_EQ(host.received(rqn), 0u);
  EXPECT_EQ(discards(), 1u);
  EXPECT_TRUE(host.poll(cqn).empty());
  host.run();
  const auto frame = make_frame({.payload = 4'000});
  host.arrive(frame);
  EXPECT_EQ(host.received(rqn), 1u);
  EXPECT_EQ(discards(), 1u);
  for (std::size_t i = 0; i != frame.size(); ++i) {
    ASSERT_EQ(*host.at(memory + 2 * i), frame[i]) << i;
  }
}

TEST_F(EthernetKeyWork, CopiesOfAFrameThatCostTooMuchAreDropped) {
  const auto rqn = create_scattering_rq(4, 1'500);
  const EthernetHost::Destination tir{destination_type::TIR, host.create_direct_tir(rqn)};
  steer(flow_table_type::NIC_RX, std::vector(10, tir));
  const auto frame = make_frame({.payload = 1'400});
  const auto one = static_cast<std::int64_t>(frame.size()) * kPieceWork;
  const auto before = host.device.work_done();
  host.arrive(frame);
  EXPECT_LT(host.device.work_done() - before, 500'000 + one + 50'000);
  EXPECT_EQ(host.received(rqn), 5u);
  EXPECT_EQ(discards(), 5u);
  for (std::size_t i = 0; i != frame.size(); ++i) {
    ASSERT_EQ(*host.at(memory + 2 * i), frame[i]) << i;
  }
}

// A sniffer's lost copies are no discards of the port: the frame itself has arrived.
TEST_F(EthernetKeyWork, CopiesForASnifferThatCostTooMuchAreNoDiscards) {
  const auto rqn = create_scattering_rq(4, 1'500);
  const EthernetHost::Destination tir{destination_type::TIR, host.create_direct_tir(rqn)};
  const auto receiver = host.create_rq(cqn);
  host.post_receive(receiver, 2'048);
  steer(flow_table_type::NIC_RX, {{destination_type::TIR, host.create_direct_tir(receiver)}});
  steer(flow_table_type::SNIFFER_RX, std::vector(10, tir));
  host.arrive(make_frame({.payload = 1'400}));
  EXPECT_EQ(host.received(receiver), 1u);
  EXPECT_EQ(host.received(rqn), 5u);
  EXPECT_EQ(discards(), 0u);
}

/// On a switch, which takes trains.
class EthernetKeyWorkOfTrains : public EthernetKeyWork {
 protected:
  EthernetKeyWorkOfTrains() : EthernetKeyWork(true) {}
};

TEST_F(EthernetKeyWorkOfTrains, APacketOfALargeSendIsGatheredInOneWalk) {
  const auto sqn = host.create_sq(cqn);
  constexpr std::uint32_t kSize = 1'500;
  post_large(sqn, kPiecesKey, 0, 100, kSize);
  const auto work = all_turns(sqn);
  EXPECT_GE(work, kSize * kPieceWork);
  EXPECT_LT(work, kSize * kPieceWork + 60'000);
  EXPECT_FALSE(host.poll(cqn).empty());
}

TEST_F(EthernetKeyWorkOfTrains, CopiesOfPacketsThatCostTooMuchAreDropped) {
  const auto rqn = create_scattering_rq(4, 1'500);
  steer(flow_table_type::SNIFFER_TX, {{destination_type::TIR, host.create_direct_tir(rqn)}});
  const auto sqn = host.create_sq(cqn);
  constexpr std::uint32_t kPackets = 15;
  post_large(sqn, EthernetHost::kKey, host.allocate(kPackets * 1'400), 1'400, kPackets * 1'400);
  EXPECT_LT(turn(sqn), 700'000);
  host.run();
  const auto copies = host.received(rqn);
  EXPECT_GE(copies, 5u);
  EXPECT_LT(copies, 10u);
  EXPECT_EQ(discards(), 0u) << "a sniffer's copies are no frames of the port";
}

}  // namespace
}  // namespace softhca::connectx::test

// Packets through keys of many pieces: the walk over the pieces is the work of a packet, and a turn
// has room for one.

#include <gtest/gtest.h>

#include "rdma/pair.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma::test {
namespace {

constexpr std::uint32_t kPieces = 2048;  ///< of a byte each, two packets
constexpr MKey kPiecesKey{0x2222'56}, kGoneKey{0x3333'56};
const KeyUser kUser{kPd, Qpn{}};

/// Inserts kPiecesKey. `place(i)`: offset of piece i in the memory.
template <class Place>
void insert_pieces(End& end, Place place, MKey of = kKey) {
  auto attributes = end.keys.find(kKey)->attributes();
  attributes.key = kPiecesKey;
  attributes.pages.clear();
  attributes.start = 0;
  attributes.length = kPieces;
  for (std::uint32_t i = 0; i != kPieces; ++i) {
    attributes.indirect.push_back(End::sge(place(i), 1, of));
  }
  end.keys.insert(attributes);
}

/// Inserts a key without memory.
void insert_gone(End& end) {
  auto attributes = end.keys.find(kKey)->attributes();
  attributes.key = kGoneKey;
  for (auto& page : attributes.pages) page += std::uint64_t{1} << 40;
  end.keys.insert(attributes);
}

std::int64_t work_of_a_walk(End& end) {
  std::vector<std::byte> bytes(kPieces);
  (void)end.keys.work().drain();
  (void)end.keys.read(*end.keys.find(kPiecesKey), 0, bytes);
  return end.keys.work().drain();
}

std::uint32_t together(std::uint32_t i) { return 0x20000 + i; }
std::uint32_t apart(std::uint32_t i) { return 0x20000 + 2 * i; }
/// A frame runs out of segments for the last ones.
std::uint32_t apart_at_last(std::uint32_t i) {
  return i + 64 < kPieces ? together(i) : apart(i) + kPieces;
}

TEST(KeyWork, APacketIsGatheredInOneWalk) {
  for (auto* place : {together, apart, apart_at_last}) {
    Pair pair;
    auto& keys = pair.a.keys;
    pair.a.fill(0x20000, 0x2000, 1);
    insert_pieces(pair.a, place);
    const auto walk = work_of_a_walk(pair.a);
    const std::vector<Sge> whole{{0, kPieces, kPiecesKey}};
    const std::vector<Sge> halves{{0, kPieces / 2, kPiecesKey},
                                  {kPieces / 2, kPieces / 2, kPiecesKey}};
    for (const auto& sges : {whole, halves}) {
      wire::Frame frame;
      EXPECT_EQ(gather(keys, kUser, sges, {}, 0, kPieces, frame), Reason::kNone);
      EXPECT_EQ(keys.work().drain(), walk);
      EXPECT_EQ(frame.owns_segments(), place != together);
      std::vector<std::byte> bytes(kPieces);
      ASSERT_EQ(frame.size(), bytes.size());
      frame.copy_range(0, bytes);
      for (std::uint32_t i = 0; i != kPieces; ++i) ASSERT_EQ(bytes[i], *pair.a.at(place(i))) << i;
    }
  }
}

// As when a program ends whose sends are under way.
TEST(KeyWork, MemoryThatIsGoneIsLookedForOnce) {
  Pair pair;
  insert_gone(pair.a);
  insert_pieces(pair.a, together, kGoneKey);
  const auto walk = work_of_a_walk(pair.a);
  wire::Frame frame;
  const std::vector<Sge> sges{{0, kPieces, kPiecesKey}};
  EXPECT_EQ(gather(pair.a.keys, kUser, sges, {}, 0, kPieces, frame), Reason::kMemoryUnreachable);
  EXPECT_EQ(pair.a.keys.work().drain(), walk);
}

TEST(KeyWork, BytesOfTheRequestFollowReferencedMemory) {
  Pair pair;
  pair.a.fill(0x20000, 100, 1);
  const std::vector<std::byte> data(8, std::byte{0x5A});
  wire::Frame frame;
  const std::vector<Sge> sges{End::sge(0x20000, 100), {2, 4, MKey{}, true}, End::sge(0x20000, 3)};
  ASSERT_EQ(gather(pair.a.keys, kUser, sges, data, 0, 107, frame), Reason::kNone);
  std::vector<std::byte> bytes(107), expected(pair.a.at(0x20000), pair.a.at(0x20000) + 100);
  frame.copy_range(0, bytes);
  expected.insert(expected.end(), 4, std::byte{0x5A});
  expected.insert(expected.end(), pair.a.at(0x20000), pair.a.at(0x20000) + 3);
  EXPECT_EQ(bytes, expected);
}

TEST(KeyWork, AResponseAndARequestOfAQpShareNoTurn) {
  Pair pair;
  pair.connect();
  insert_pieces(pair.b, apart);
  const auto walk = work_of_a_walk(pair.b);
  pair.a.on_transmit = [&](End&, const wire::Frame& frame) {
    pair.b.transport.handle_frame(frame, pair.now);
  };
  unsigned sent = 0;
  pair.b.on_transmit = [&](End&, const wire::Frame&) { ++sent; };
  auto request = read(0x4000, 0, kPieces);
  request.remote_address = 0;
  request.rkey = kPiecesKey;
  pair.a.post(*pair.qa, request);
  pair.a.run(pair.now);
  auto own = write(0, 0, kPieces);
  own.sges = {{0, kPieces, kPiecesKey}};
  pair.b.post(*pair.qb, own);
  unsigned turns = 0;
  for (; sent < 4 && turns != 10; ++turns) {
    util::WorkBudget work(25'000);
    pair.b.transport.run(pair.now, work);
    EXPECT_LT(work.done(), walk);
  }
  EXPECT_EQ(turns, 4u) << "each sends a packet";
}

TEST(KeyWork, CopiesOfADatagramThatCostTooMuchAreDropped) {
  Pair pair;
  pair.connect(QpType::kUd);
  insert_pieces(pair.b, apart);
  const auto walk = work_of_a_walk(pair.b);
  const auto group = Gid::from_ipv4(0xE1020304);
  for (const Qpn qpn : {Qpn(0x31), Qpn(0x32), Qpn(0x33)}) {
    auto& qp = pair.b.create_qp(qpn, QpType::kUd, {}, {});
    Pair::to_rts(pair.b, qp, pair.attributes_for(pair.b, pair.a, Qpn(0)));
    ASSERT_TRUE(pair.b.transport.groups().attach(qpn, group));
    pair.b.post_receive(qp, {{0, kPieces, kPiecesKey}});
  }
  auto request = send(0, 1000);
  request.ud.dst_gid = group;
  request.ud.dst_mac = Mac::from_u64(0x01005E020304);
  request.ud.qpn = Qpn(0xFFFFFF);
  request.ud.qkey = 0x1111;
  pair.a.post(*pair.qa, request);
  pair.a.on_transmit = [&](End&, const wire::Frame& frame) {
    pair.b.transport.handle_frame(frame, pair.now);
  };
  pair.a.run(pair.now);
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kResources), 2u);
  EXPECT_LT(pair.b.keys.work().drain(), walk);
}

/// Accepts each access without effect.
class NoMemory final : public pcie::RemoteMemory {
 public:
  bool dma_read(pcie::Iova, std::span<std::byte>) override { return true; }
  bool dma_write(pcie::Iova, std::span<const std::byte>) override { return true; }
};

TEST(KeyWork, MessagesToTheMemorysOwnerAreTheReceivers) {
  constexpr pcie::Iova kIova = 0x50'0000'0000;
  Pair pair;
  pair.connect();
  NoMemory peer;
  ASSERT_TRUE(pair.b.dma.map_remote(kIova, 4096, peer, pcie::DmaAccess::kReadWrite));
  auto attributes = pair.b.keys.find(kKey)->attributes();
  attributes.key = MKey(0x4444'56);
  attributes.start = 0;
  attributes.length = 4096;
  attributes.pages = {kIova};
  pair.b.keys.insert(attributes);
  auto request = write(0, 0, 100);
  request.remote_address = 0;
  request.rkey = attributes.key;
  pair.a.post(*pair.qa, request);
  pair.a.on_transmit = [&](End&, const wire::Frame& frame) {
    pair.b.transport.handle_frame(frame, pair.now);
  };
  (void)pcie::RemoteAccesses::take();
  pair.a.run(pair.now);
  EXPECT_GT(pair.b.keys.work().drain(), 1000);
  EXPECT_FALSE(pcie::RemoteAccesses::any()) << "the next function to run would pay";
}

}  // namespace
}  // namespace softhca::rdma::test

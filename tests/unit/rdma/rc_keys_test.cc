// RC through keys that lead to other keys, and to memory of a remote owner.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "rdma/rc_bytes.h"

namespace softhca::rdma::test {
namespace {

/// Memory that is only accessible through calls.
class RemoteOwner : public pcie::RemoteMemory {
 public:
  bool dma_read(pcie::Iova from, std::span<std::byte> out) override {
    std::memcpy(out.data(), bytes.data() + (from - kIova), out.size());
    return true;
  }
  bool dma_write(pcie::Iova to, std::span<const std::byte> in) override {
    std::memcpy(bytes.data() + (to - kIova), in.data(), in.size());
    return true;
  }
  static constexpr pcie::Iova kIova = 0x9'0000'0000;
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 16);
};

/// Maps the peer's memory at b and inserts a key of it, the last page first. Returns the key.
MKey insert(Pair& pair, RemoteOwner& peer) {
  EXPECT_TRUE(
      pair.b.dma.map_remote(RemoteOwner::kIova, 1 << 16, peer, pcie::DmaAccess::kReadWrite));
  MemoryKey::Attributes key;
  key.key = MKey(0x900);
  key.pd = kPd;
  key.access = kRemoteRead | kRemoteWrite | kRemoteAtomic;
  key.start = kKeyStart;
  key.length = 1 << 16;
  for (unsigned i = 0; i < 16; ++i) key.pages.push_back(RemoteOwner::kIova + (15 - i) * 4096);
  pair.b.keys.insert(key);
  return key.key;
}

TEST_F(Rc, RemoteMemoryIsReadAndWrittenThroughItsOwner) {
  RemoteOwner peer;
  const auto key = insert(pair, peer);
  auto there = write(0x1000, 0x10, 20000);
  auto back = read(0x10000, 0x10, 20000);
  auto add = fetch_add(0x30000, 0x8000, 5);
  there.rkey = back.rkey = add.rkey = key;
  back.fence = add.fence = true;
  pair.a.post(*pair.qa, there);
  pair.a.post(*pair.qa, back);
  pair.a.post(*pair.qa, add);
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(3, WorkStatus::kSuccess));
  EXPECT_TRUE(same(pair.a, 0x1000, pair.a, 0x10000, 20000));
  std::uint64_t value;
  std::memcpy(&value, peer.bytes.data() + 7 * 4096, 8);
  EXPECT_EQ(value, pair.a.load64(0x30000) + 5);
  // Messages to a remote owner cost far more work than a packet.
  std::array<std::byte, 8> bytes{};
  (void)pcie::RemoteAccesses::take();
  (void)pair.b.keys.work().drain();
  ASSERT_TRUE(pair.b.keys.write(*pair.b.keys.find(key), kKeyStart, bytes));
  const auto one = pair.b.keys.work().drain();
  EXPECT_GT(one, 1000);
  ASSERT_TRUE(pair.b.keys.read(*pair.b.keys.find(key), kKeyStart, bytes));
  EXPECT_EQ(pair.b.keys.work().drain(), one);
}

// A peer may fill the upper half of the operands of 4 bytes.
TEST_F(Rc, MaskedAtomicsOf4BytesIgnoreTheUpperHalfOfTheirOperands) {
  RemoteOwner peer;
  const auto key = insert(pair, peer);
  const std::uint32_t before = 5;
  auto* const there = peer.bytes.data() + 15 * 4096;
  std::memcpy(there, &before, 4);
  std::memcpy(pair.b.at(0), &before, 4);
  for (const auto rkey : {kKey, key}) {
    auto swap = fetch_add(0x30000, 0, 0);
    swap.opcode = SendOpcode::kMaskedCompareSwap;
    swap.rkey = rkey;
    swap.sges[0].length = 4;
    swap.compare = 0xAAAAAAAA'00000005;
    swap.swap_add = 9;
    swap.masked = {.swap_mask = ~std::uint64_t{0}, .compare_mask = ~std::uint64_t{0}, .size = 4};
    pair.a.post(*pair.qa, swap);
  }
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(2, WorkStatus::kSuccess));
  const std::uint32_t after = 9;
  EXPECT_EQ(std::memcmp(pair.b.at(0), &after, 4), 0) << "memory of this process";
  EXPECT_EQ(std::memcmp(there, &after, 4), 0) << "memory behind its owner";
}

TEST_F(Rc, IndirectKeysLeadToOtherKeys) {
  MemoryKey::Attributes key;
  key.key = MKey(0xA00);
  key.pd = kPd;
  key.access = kRemoteRead | kRemoteWrite;
  key.start = 0x5000;
  key.length = 3000;
  key.indirect = {End::sge(0x9000, 1000), End::sge(0x100, 1500), End::sge(0x7000, 500)};
  pair.b.keys.insert(key);
  auto there = write(0x1000, 0, 2900);
  there.rkey = key.key;
  there.remote_address = 0x5000 + 50;
  pair.a.post(*pair.qa, there);
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kSuccess});
  EXPECT_TRUE(same(pair.a, 0x1000, pair.b, 0x9000 + 50, 950));
  EXPECT_TRUE(same(pair.a, 0x1000 + 950, pair.b, 0x100, 1500));
  EXPECT_TRUE(same(pair.a, 0x1000 + 2450, pair.b, 0x7000, 450));
}

// IBTA allows 2^31 bytes, the driver interface 2^30 (log_max_msg 30). Each host maps its 1 MiB a
// thousand times.
TEST(RcLargest, AMessageOfOneGibibyteArrives) {
  constexpr std::uint32_t kMessage = 1u << 30;
  constexpr std::uint32_t kPiece = 1u << 20;
  Pair pair({.trains = true});
  pair.adjust = [](QpAttributes& attributes) { attributes.path_mtu = 4096; };
  pair.connect();
  MemoryKey::Attributes key;
  key.key = MKey(0xA00);
  key.pd = kPd;
  key.access = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite;
  key.length = kMessage;
  key.indirect.assign(kMessage / kPiece - 1, End::sge(0, kPiece));
  key.indirect.push_back(End::sge(kPiece, kPiece));  // the tail follows the rest
  pair.a.keys.insert(key);
  pair.b.keys.insert(key);
  pair.a.fill(0, 2 * kPiece, 1);
  pair.b.fill(0, 2 * kPiece, 2);
  auto request = write(0, 0, kMessage);
  request.sges = {{.address = 0, .length = kMessage, .lkey = key.key}};
  request.rkey = key.key;
  request.remote_address = 0;
  pair.a.post(*pair.qa, request);
  pair.drive(3'000'000);
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kSuccess});
  EXPECT_TRUE(same(pair.a, 0, pair.b, 0, 2 * kPiece));
}

/// A list of two pieces. The second is not usable through the list.
struct RcInnerKeys : Rc, ::testing::WithParamInterface<std::pair<const char*, MKey>> {
  static constexpr MKey kReadable{0xB00}, kOtherPd{0xC00};
  static constexpr MKey kUnknown{0xD00};
  static constexpr MKey kList{0xA00};

  RcInnerKeys() {
    for (auto* end : {&pair.a, &pair.b}) {
      MemoryKey::Attributes inner;
      inner.key = kReadable;
      inner.pd = kPd;
      inner.access = kLocalRead;
      inner.start = 0;
      inner.length = 0x20000;
      inner.indirect = {End::sge(0, 0x20000)};
      if (GetParam().second == kReadable) inner.access = 0;
      end->keys.insert(inner);
      inner.key = kOtherPd;
      inner.access = kLocalRead | kLocalWrite;
      inner.pd = Pd(kPd.value() + 1);
      end->keys.insert(inner);
      MemoryKey::Attributes list;
      list.key = kList;
      list.pd = kPd;
      list.access = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic;
      list.start = 0;
      list.length = 0x2000;
      list.indirect = {End::sge(0x9000, 0x1000), {0x4000, 0x1000, GetParam().second}};
      end->keys.insert(list);
    }
  }
  SendRequest through_list(SendRequest request, std::uint64_t address) const {
    request.rkey = kList;
    request.remote_address = address;
    return request;
  }
  WorkStatus status_of(const SendRequest& request) {
    pair.a.post(*pair.qa, request);
    pair.drive();
    return pair.a.hca.sends.back().status;
  }
};

// IBTA 9.7.5.2.4: an access beyond an R_Key's rights is a remote access error, not an operational
// one.
TEST_P(RcInnerKeys, OnePieceThatRefusesIsARemoteAccessErrorOfAWrite) {
  EXPECT_EQ(status_of(through_list(write(0x1000, 0, 0x1000), 0)), WorkStatus::kSuccess);
  EXPECT_EQ(status_of(through_list(write(0x1000, 0, 0x1001), 0)), WorkStatus::kRemoteAccess);
}

TEST_P(RcInnerKeys, OnePieceThatRefusesIsARemoteAccessErrorOfARead) {
  EXPECT_EQ(status_of(through_list(read(0x1000, 0, 0x1000), 0)), WorkStatus::kSuccess);
  EXPECT_EQ(status_of(through_list(read(0x1000, 0, 0x1001), 0)), WorkStatus::kRemoteAccess);
}

TEST_P(RcInnerKeys, OnePieceThatRefusesIsARemoteAccessErrorOfAnAtomic) {
  EXPECT_EQ(status_of(through_list(fetch_add(0x1000, 0, 1), 0)), WorkStatus::kSuccess);
  EXPECT_EQ(status_of(through_list(fetch_add(0x1000, 0, 1), 0x1000)), WorkStatus::kRemoteAccess);
}

TEST_P(RcInnerKeys, OnePieceThatRefusesIsALocalProtectionErrorOfTheListsUser) {
  auto request = write(0x1000, 0, 0x1001);
  request.sges = {{0, 0x1001, kList}};
  EXPECT_EQ(status_of(request), WorkStatus::kLocalProtection);
}

INSTANTIATE_TEST_SUITE_P(Keys, RcInnerKeys,
                         ::testing::Values(std::pair{"WithoutTheRight", RcInnerKeys::kReadable},
                                           std::pair{"OfAnotherPd", RcInnerKeys::kOtherPd},
                                           std::pair{"Unknown", RcInnerKeys::kUnknown}),
                         [](const auto& each) { return each.param.first; });

}  // namespace
}  // namespace softhca::rdma::test

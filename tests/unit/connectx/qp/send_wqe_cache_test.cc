// A WQE like the previous one is decoded on a fast path. The result must equal the slow path's, and
// a WQE that the slow path refuses must not pass.

#include "connectx/qp/send_wqe_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "connectx/qp/wqe_builder.h"

namespace softhca::connectx {
namespace {

using rdma::QpType;
using test::WqeBuilder;
using CtrlSegment = spec::connectx::wqe_ctrl_segment;
using WqeOpcode = spec::connectx::wqe_opcode;
using WqeBlock = std::array<std::byte, kWqeBasicBlock>;

constexpr std::uint32_t kSeenQpn = 0x41;

SendWqeRules seen_rules(QpType type = QpType::kRc) {
  return {.type = type, .qpn = rdma::Qpn(kSeenQpn)};
}

/// The first block of a WQE in the ring, followed by stale bytes `rest`.
WqeBlock block_of(const WqeBuilder& wqe, std::byte rest = std::byte{0x5A}) {
  WqeBlock block;
  block.fill(rest);
  const auto bytes = wqe.bytes();
  std::copy_n(bytes.begin(), std::min(bytes.size(), block.size()), block.begin());
  return block;
}

/// Decodes on the slow path. Nothing if the WQE is refused.
std::optional<rdma::SendRequest> decode(const WqeBuilder& wqe, std::uint16_t index,
                                        SendWqeCache& seen, QpType type = QpType::kRc) {
  rdma::SendRequest request;
  const auto control = SendWqeControl::parse(wqe.bytes());
  if (decode_send_wqe(wqe.bytes(), control, index, seen_rules(type), request) != WqeFault::kNone) {
    return std::nullopt;
  }
  request.cookie = SendCookie{.index = index,
                              .opcode = static_cast<std::uint8_t>(control.opcode),
                              .completion = control.completion}
                       .pack();
  seen.remember(wqe.bytes(), control, seen_rules(type), request);
  return request;
}

void expect_same(const rdma::SendRequest& a, const rdma::SendRequest& b) {
  EXPECT_EQ(a.cookie, b.cookie);
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.signaled, b.signaled);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.fence, b.fence);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.remote_address, b.remote_address);
  EXPECT_EQ(a.rkey, b.rkey);
  EXPECT_EQ(a.is_inline, b.is_inline);
  EXPECT_TRUE(std::ranges::equal(std::span<const std::byte>(a.inline_data),
                                 std::span<const std::byte>(b.inline_data)));
  ASSERT_EQ(a.sges.size(), b.sges.size());
  for (std::size_t i = 0; i != a.sges.size(); ++i) {
    EXPECT_EQ(a.sges[i].address, b.sges[i].address);
    EXPECT_EQ(a.sges[i].length, b.sges[i].length);
    EXPECT_EQ(a.sges[i].lkey, b.sges[i].lkey);
  }
}

void expect_same(const rdma::ShortDatagram& a, const rdma::SendRequest& b) {
  EXPECT_EQ(a.cookie, b.cookie);
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.signaled, b.signaled);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.inline_data != nullptr, b.is_inline);
  if (b.is_inline) {
    const std::span<const std::byte> bytes = b.inline_data;
    EXPECT_TRUE(std::ranges::equal(std::span(a.inline_data, a.length), bytes));
  } else {
    ASSERT_EQ(b.sges.size(), 1u);
    EXPECT_EQ(a.address, b.sges[0].address);
    EXPECT_EQ(a.length, b.sges[0].length);
    EXPECT_EQ(a.lkey, b.sges[0].lkey);
  }
}

/// A datagram to peer number `peer`.
WqeBuilder datagram(WqeOpcode opcode, std::uint16_t index, std::uint32_t peer) {
  wire::MacAddress mac;
  mac.bytes.back() = static_cast<std::byte>(peer);
  wire::Gid gid;
  gid.bytes.back() = static_cast<std::byte>(peer);
  return WqeBuilder(opcode, index, kSeenQpn).datagram(peer, 0x1234, mac, gid, 1);
}

WqeBuilder random_wqe(std::mt19937& random, std::uint16_t index) {
  constexpr WqeOpcode kOpcodes[] = {
      WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_WRITE_IMM, WqeOpcode::SEND, WqeOpcode::SEND_IMM,
      WqeOpcode::RDMA_READ,  WqeOpcode::ATOMIC_FA,      WqeOpcode::NOP};
  // Runs of one opcode, as in real queues.
  const auto opcode = kOpcodes[index % 64 < 48 ? 0 : random() % std::size(kOpcodes)];
  WqeBuilder wqe(opcode, index, kSeenQpn);
  wqe.control(CtrlSegment::ce, random() % 4);
  if (random() % 8 == 0) wqe.control(CtrlSegment::se, 1);
  if (random() % 8 == 0) wqe.control(CtrlSegment::fm, random() % 5);
  wqe.immediate(static_cast<std::uint32_t>(random()));
  if (opcode == WqeOpcode::NOP) return wqe;
  if (opcode != WqeOpcode::SEND && opcode != WqeOpcode::SEND_IMM) {
    wqe.remote(random(), random() % 256);
  }
  if (opcode == WqeOpcode::ATOMIC_FA) return wqe.atomic(random(), random()).data(0x1000, 8, 6);
  if (random() % 4 == 0 && opcode != WqeOpcode::RDMA_READ) {
    return wqe.inline_data(std::string(random() % 40, static_cast<char>('a' + random() % 26)));
  }
  for (auto i = random() % 8 == 0 ? 2u : 1u; i != 0; --i) {
    wqe.data(random(), random() % 8 == 0 ? 0 : random() % (1 << 21), random() % 256);
  }
  return wqe;
}

TEST(SendWqeCache, GivesWhatTheSlowPathGives) {
  std::mt19937 random(1);
  SendWqeCache seen;
  unsigned taken = 0;
  for (std::uint32_t i = 0; i != 20'000; ++i) {
    const auto index = static_cast<std::uint16_t>(i);
    const auto wqe = random_wqe(random, index);
    rdma::SendRequest quick;
    const bool decoded = seen.is_set() && seen.decode_fast(block_of(wqe), index, quick);
    const auto full = decode(wqe, index, seen);
    if (!decoded) continue;
    ++taken;
    ASSERT_TRUE(full) << "what is refused must not pass";
    expect_same(quick, *full);
  }
  EXPECT_GT(taken, 1'000u);
}

// PRM 7.4.4.1.1: wqe_index must match the WQE's place.
TEST(SendWqeCache, AnotherIndexTakesTheSlowPath) {
  const auto wqe = WqeBuilder(WqeOpcode::RDMA_WRITE, 7, kSeenQpn).remote(1, 2).data(3, 4, 5);
  SendWqeCache seen;
  ASSERT_TRUE(decode(wqe, 7, seen));
  rdma::SendRequest request;
  EXPECT_TRUE(seen.decode_fast(block_of(wqe), 7, request));
  EXPECT_FALSE(seen.decode_fast(block_of(wqe), 8, request));
}

// A stale byte count after the WQE does not belong to it.
TEST(SendWqeCache, InlineDataEndWithTheUnitsThatTheWqeHas) {
  SendWqeCache seen;
  const std::string data(8, 'x');
  ASSERT_TRUE(decode(WqeBuilder(WqeOpcode::RDMA_WRITE, 0, kSeenQpn).remote(1, 2).inline_data(data),
                     0, seen));
  auto block =
      block_of(WqeBuilder(WqeOpcode::RDMA_WRITE, 1, kSeenQpn).remote(1, 2).inline_data(data));
  using Inline = spec::connectx::data_segment_inline;
  const util::MutableView<Inline> header(std::as_writable_bytes(std::span(block)).subspan(32));
  for (std::uint32_t length = 0; length != 64; ++length) {
    header.set(Inline::byte_count, length);
    rdma::SendRequest request;
    EXPECT_EQ(seen.decode_fast(block, 1, request), length >= 1 && length <= 12) << length;
  }
}

TEST(SendWqeCache, NothingIsKnownOfDatagramsAndAfterForgetting) {
  SendWqeCache seen;
  EXPECT_FALSE(seen.is_set());
  const auto wqe = WqeBuilder(WqeOpcode::SEND, 3, kSeenQpn).data(3, 4, 5);
  ASSERT_TRUE(decode(wqe, 3, seen));
  rdma::SendRequest request;
  EXPECT_TRUE(seen.decode_fast(block_of(wqe), 3, request));
  seen.forget();
  EXPECT_FALSE(seen.is_set());
  ASSERT_TRUE(decode(datagram(WqeOpcode::SEND, 4, 1).data(3, 4, 5), 4, seen, QpType::kUd));
  EXPECT_FALSE(seen.is_set());
}

/// Decodes on the slow path, as a UD WQE.
std::optional<rdma::SendRequest> decode(const WqeBuilder& wqe, std::uint16_t index,
                                        DatagramWqeCache& seen, std::uint64_t& numbers) {
  SendWqeCache unused;
  auto request = decode(wqe, index, unused, QpType::kUd);
  if (!request) return std::nullopt;
  const auto control = SendWqeControl::parse(wqe.bytes());
  seen.remember(wqe.bytes(), control, seen_rules(QpType::kUd), *request, numbers);
  return request;
}

WqeBuilder random_datagram(std::mt19937& random, std::uint16_t index) {
  const bool usual = index % 64 < 48;
  auto wqe = datagram(usual || random() % 2 ? WqeOpcode::SEND : WqeOpcode::SEND_IMM, index,
                      usual ? index / 64 % 4 : random() % 4);
  wqe.control(CtrlSegment::ce, random() % 4);
  if (random() % 16 == 0) wqe.control(CtrlSegment::se, 1);
  wqe.immediate(static_cast<std::uint32_t>(random()));
  if (index / 64 % 2 == 0) {
    return wqe.inline_data(std::string(40 + random() % 30, static_cast<char>('a' + random() % 26)));
  }
  for (auto i = random() % 8 == 0 ? 2u : 1u; i != 0; --i) {
    wqe.data(random(), random() % 8 == 0 ? 0 : random() % 4096, random() % 256);
  }
  return wqe;
}

TEST(DatagramWqeCache, GivesWhatTheSlowPathGives) {
  std::mt19937 random(2);
  DatagramWqeCache seen;
  std::uint64_t numbers = 0;
  unsigned taken = 0;
  rdma::SendRequest quick;  // stale, like a reused entry
  for (std::uint32_t i = 0; i != 20'000; ++i) {
    const auto index = static_cast<std::uint16_t>(i);
    const auto wqe = random_datagram(random, index);
    std::vector<std::byte> in_ring = wqe.bytes();
    in_ring.resize(512, std::byte{0x5A});
    quick.reset();
    const bool decoded = seen.size() != 0 && seen.decode_fast(in_ring.data(), index, quick);
    rdma::ShortDatagram datagram{};
    if (seen.size() != 0) {
      ASSERT_EQ(seen.decode_fast(in_ring.data(), index, datagram), decoded);
    }
    const auto full = decode(wqe, index, seen, numbers);
    if (!decoded) continue;
    ++taken;
    ASSERT_TRUE(full) << "what is refused must not pass";
    expect_same(quick, *full);
    expect_same(datagram, *full);
    EXPECT_EQ(quick.ud.qpn, full->ud.qpn);
    EXPECT_EQ(quick.ud.qkey, full->ud.qkey);
    EXPECT_EQ(static_cast<const rdma::Path&>(quick.ud), full->ud);
    EXPECT_NE(quick.ud.number, 0u);
    EXPECT_EQ(quick.ud.number, full->ud.number);
  }
  EXPECT_GT(taken, 1'000u);
}

// Destinations must differ even if only their numbers are compared.
TEST(DatagramWqeCache, AnotherAddressVectorIsAnotherDestination) {
  DatagramWqeCache seen;
  std::uint64_t numbers = 0;
  const auto number = [&](std::uint16_t index, unsigned peer, std::size_t length) {
    const auto wqe = datagram(WqeOpcode::SEND, index, peer).inline_data(std::string(length, 'x'));
    return decode(wqe, index, seen, numbers)->ud.number;
  };
  const auto first = number(0, 1, 8);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(number(1, 1, 80), first) << "of another size, to the same peer";
  const auto second = number(2, 2, 80);
  EXPECT_NE(second, first);
  const auto third = number(3, 1, 80);
  EXPECT_NE(third, second);
  seen.forget();
  EXPECT_NE(number(4, 1, 80), third) << "it may be another one";
}

TEST(DatagramWqeCache, AFalseLengthTakesNoMoreThanTheWqeHas) {
  DatagramWqeCache seen;
  std::uint64_t numbers = 0;
  ASSERT_TRUE(
      decode(datagram(WqeOpcode::SEND, 0, 1).inline_data(std::string(20, 'x')), 0, seen, numbers));
  const auto wqe = datagram(WqeOpcode::SEND, 1, 1).inline_data(std::string(20, 'y'));
  std::vector<std::byte> in_ring = wqe.bytes();
  in_ring.resize(512);
  using Inline = spec::connectx::data_segment_inline;
  const util::MutableView<Inline> header(std::span<std::byte>(in_ring).subspan(64));
  for (std::uint32_t length = 0; length != 256; ++length) {
    header.set(Inline::byte_count, length);
    rdma::SendRequest request;
    EXPECT_EQ(seen.decode_fast(in_ring.data(), 1, request), length >= 13 && length <= 28) << length;
  }
}

TEST(DatagramWqeCache, NothingIsKnownOfConnectedServicesAndOfWhatIsNotOneSegment) {
  DatagramWqeCache seen;
  std::uint64_t numbers = 0;
  const auto knows = [&](const WqeBuilder& wqe, std::uint16_t index) {
    (void)decode(wqe, index, seen, numbers);
    return seen.size() != 0;
  };
  EXPECT_TRUE(knows(datagram(WqeOpcode::SEND, 0, 1).data(3, 4, 5), 0));
  EXPECT_FALSE(knows(datagram(WqeOpcode::SEND, 1, 1).data(3, 4, 5).data(3, 4, 5), 1));
  EXPECT_TRUE(knows(datagram(WqeOpcode::SEND, 2, 1).inline_data("abc"), 2));
  EXPECT_FALSE(knows(datagram(WqeOpcode::SEND, 3, 1), 3));
  EXPECT_FALSE(knows(WqeBuilder(WqeOpcode::NOP, 4, kSeenQpn), 4));
}

}  // namespace
}  // namespace softhca::connectx

// Ethernet frames through the driver: two devices, an SQ on one, an RQ on the other.
#include <cstring>

#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/frame_exchange.h"
#include "driver/world.h"
#include "wire/checksum.h"
#include "wire/ethernet.h"
#include "wire/ipv4.h"
#include "wire/tcp.h"

namespace softhca::driver::test {
namespace {

constexpr std::size_t kSlot = 4096;

/// One side of the exchange: its queues and memory.
struct Station {
  explicit Station(Node& on)
      : hca(*on.hca),
        memory(64 * kSlot),
        pd(must(connectx::ProtectionDomain::create(hca))),
        domain(must(connectx::TransportDomain::create(hca))),
        key(must(connectx::MemoryKey::register_memory(*pd, memory, {}))),
        cq(must(connectx::CompletionQueue::create(hca))),
        sender(must(connectx::FrameSender::create(
            *pd, *domain, {.cq = *cq, .send = {.requests = 16, .pieces = 3, .inline_size = 128}}))),
        receiver(must(connectx::FrameReceiver::create(
            *pd, *domain, {.cq = *cq, .receive = {.requests = 32, .pieces = 2}}))) {
    must(receiver->take_all_frames());
  }
  Sge piece(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(length), key->key()};
  }
  void receive(std::uint64_t slot, std::size_t size = kSlot) {
    const auto at = piece(slot * kSlot, size);
    ASSERT_EQ(receiver->post({.id = slot, .pieces = {&at, 1}}), PostStatus::kOk);
  }
  std::span<std::byte> bytes(std::size_t offset, std::size_t size) {
    return std::span(memory).subspan(offset, size);
  }

  connectx::Hca& hca;
  std::vector<std::byte> memory;
  std::unique_ptr<connectx::ProtectionDomain> pd;
  std::unique_ptr<connectx::TransportDomain> domain;
  std::unique_ptr<connectx::MemoryKey> key;
  std::unique_ptr<connectx::CompletionQueue> cq;
  std::unique_ptr<connectx::FrameSender> sender;
  std::unique_ptr<connectx::FrameReceiver> receiver;
};

class Frames : public ::testing::Test {
 protected:
  Frames() {
    world_.open();
    a_ = std::make_unique<Station>(world_.a());
    b_ = std::make_unique<Station>(world_.b());
  }

  /// Ethernet, IPv4 and TCP headers of a message with `payload` bytes.
  std::vector<std::byte> headers(std::size_t payload) {
    using Ip = wire::Ipv4Layout;
    using Tcp = wire::TcpLayout;
    std::vector<std::byte> bytes(kTcpHeaders);
    const wire::Ethernet ethernet{.destination = wire::MacAddress{b_->hca.mac().bytes},
                                  .source = wire::MacAddress{a_->hca.mac().bytes},
                                  .ether_type = wire::EtherType::kIpv4};
    ethernet.emit(util::MutableView<wire::EthernetLayout>(bytes));
    const auto l3 = std::span(bytes).subspan(wire::EthernetLayout::kSize);
    const util::MutableView<Ip> ip(l3);
    ip.set(Ip::version, 4);
    ip.set(Ip::ihl, 5);
    ip.set(Ip::total_length, static_cast<std::uint32_t>(Ip::kSize + Tcp::kSize + payload));
    ip.set(Ip::ttl, 64);
    ip.set(Ip::protocol, static_cast<std::uint32_t>(wire::IpProtocol::kTcp));
    const util::MutableView<Tcp> tcp(l3.subspan(Ip::kSize));
    tcp.set(Tcp::sequence, 1000);
    tcp.set(Tcp::data_offset, Tcp::kSize / 4);
    return bytes;
  }
  void fill(std::size_t offset, std::size_t size) {
    std::ranges::copy(pattern(size, 7), a_->bytes(offset, size).begin());
  }

  World world_;
  std::unique_ptr<Station> a_;
  std::unique_ptr<Station> b_;
};

TEST_F(Frames, AFrameArrivesWithItsChecksums) {
  const auto header = headers(1000);
  fill(0, 1000);
  const std::array pieces{a_->piece(0, 300), a_->piece(300, 700)};
  b_->receive(5);
  ASSERT_EQ(a_->sender->post({.id = 11, .header = header, .pieces = pieces, .checksums = true}),
            PostStatus::kOk);
  const auto received = wait(world_, *b_->cq);
  expect_success(received, 5, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, kTcpHeaders + 1000);
  EXPECT_EQ(received[0].qpn, b_->receiver->rqn());
  EXPECT_TRUE(received[0].l3_checksum_ok);
  EXPECT_TRUE(received[0].l4_checksum_ok);
  EXPECT_EQ(std::memcmp(b_->bytes(5 * kSlot + kTcpHeaders, 1000).data(), a_->memory.data(), 1000),
            0);
  expect_success(wait(world_, *a_->cq), 11, CompletionOpcode::kSend);
}

TEST_F(Frames, ChecksumsThatAreNotAskedForAreAsTheProgramMadeThem) {
  const auto header = headers(100);
  const auto piece = a_->piece(0, 100);
  b_->receive(0);
  ASSERT_EQ(a_->sender->post({.header = header, .pieces = {&piece, 1}}), PostStatus::kOk);
  const auto received = wait(world_, *b_->cq);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_FALSE(received[0].l3_checksum_ok);
  EXPECT_FALSE(received[0].l4_checksum_ok);
  EXPECT_EQ(std::memcmp(b_->memory.data(), header.data(), kTcpHeaders), 0);
}

TEST_F(Frames, ALargeSendArrivesInPackets) {
  const auto header = headers(2500);
  fill(0, 2500);
  const auto piece = a_->piece(0, 2500);
  for (std::uint64_t slot = 0; slot < 3; ++slot) b_->receive(slot);
  ASSERT_EQ(a_->sender->post(
                {.header = header, .pieces = {&piece, 1}, .checksums = true, .segment_size = 1000}),
            PostStatus::kOk);
  const auto received = wait(world_, *b_->cq, 3);
  ASSERT_EQ(received.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t size = i == 2 ? 500 : 1000;
    EXPECT_EQ(received[i].byte_count, kTcpHeaders + size);
    EXPECT_TRUE(received[i].l4_checksum_ok);
    const wire::TcpView tcp(b_->bytes(i * kSlot + kTcpHeaders - wire::TcpLayout::kSize, 20));
    EXPECT_EQ(tcp.get(wire::TcpLayout::sequence), 1000 + i * 1000);
    const auto at = b_->bytes(i * kSlot + kTcpHeaders, size);
    EXPECT_EQ(std::memcmp(at.data(), a_->memory.data() + i * 1000, size), 0);
  }
}

TEST_F(Frames, RequestsWrapAroundTheEndOfTheRing) {
  const auto header = headers(60);
  for (std::uint64_t i = 0; i < 100; ++i) {
    fill(i % 64, 60);
    const std::array pieces{a_->piece(i % 64, 20), a_->piece(0, 0), a_->piece(i % 64 + 20, 40)};
    b_->receive(i % 8);
    ASSERT_EQ(a_->sender->post({.id = i, .header = header, .pieces = pieces}), PostStatus::kOk);
    expect_success(wait(world_, *a_->cq), i, CompletionOpcode::kSend);
    expect_success(wait(world_, *b_->cq), i % 8, CompletionOpcode::kReceive);
    EXPECT_EQ(std::memcmp(b_->bytes(i % 8 * kSlot, kTcpHeaders).data(), header.data(), kTcpHeaders),
              0);
    EXPECT_EQ(std::memcmp(b_->bytes(i % 8 * kSlot + kTcpHeaders, 60).data(),
                          a_->memory.data() + i % 64, 60),
              0);
  }
}

TEST_F(Frames, RequestsBeyondTheQueuesOptionsAreNotPosted) {
  const std::vector<std::byte> header(129);
  const std::array<Sge, 4> pieces{};
  EXPECT_EQ(a_->sender->post({.header = header}), PostStatus::kInlineTooLong);
  EXPECT_EQ(a_->sender->post({.pieces = pieces}), PostStatus::kTooManyPieces);
  EXPECT_EQ(a_->sender->post({.segment_size = 0x4000}), PostStatus::kBadRequest);
  const std::array<Sge, 3> three{Sge{0, 1, 0}, {0, 1, 0}, {0, 1, 0}};
  const FrameRequest largest{.header = std::span(header).first(128), .pieces = three};
  const std::vector<FrameRequest> many(100, largest);
  auto status = PostStatus::kOk;
  EXPECT_EQ(a_->sender->post(many, status), 16u);
  EXPECT_EQ(status, PostStatus::kQueueFull);
}

TEST_F(Frames, AReceiveThatIsTooShortFailsAlone) {
  const auto header = headers(100);
  const auto piece = a_->piece(0, 100);
  b_->receive(0, 80);
  b_->receive(1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a_->sender->post({.header = header, .pieces = {&piece, 1}}), PostStatus::kOk);
  }
  const auto received = wait(world_, *b_->cq, 2);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, WorkStatus::kLocalLength);
  EXPECT_EQ(received[1].status, WorkStatus::kSuccess);
}

TEST_F(Frames, CompletionsOfADestroyedQueueArePassedOver) {
  const auto header = headers(0);
  b_->receive(0);
  ASSERT_EQ(a_->sender->post({.header = header}), PostStatus::kOk);
  world_.run_until([&] { return b_->memory[12] == std::byte{8}; });
  must(b_->receiver->destroy());
  EXPECT_TRUE(wait(world_, *b_->cq).empty());
  EXPECT_EQ(b_->cq->strays(), 0u);
}

}  // namespace
}  // namespace softhca::driver::test

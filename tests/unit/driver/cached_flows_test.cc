// Frames of one flow take fast paths through driver, device and peer. Fast paths must not be
// observable, so each test runs twice and compares everything. In one run, every frame is
// serialized to bytes and rebuilt on its way.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "driver/connectx/frame_sender.h"
#include "driver/frame_machine.h"
#include "fabric/port.h"
#include "wire/udp.h"

namespace softhca::driver::test {
namespace {

/// Forwards every frame as plain bytes, as a wire does.
class BytesPort final : public fabric::Port {
 public:
  BytesPort(fabric::Port& below, bool active) : below_(below), active_(active) {}

  std::uint64_t transmit(const wire::Frame& frame) override {
    if (!active_) return below_.transmit(frame);
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    auto copy = wire::Frame::from_bytes(bytes);
    copy.own_segments();
    return below_.transmit(copy);
  }
  wire::Frame& make_draft() override {
    return active_ ? fabric::Port::make_draft() : below_.draft();
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return below_.loop_back(frame, mark);
  }
  std::uint64_t released() const override { return below_.released(); }
  std::int64_t settle() override { return below_.settle(); }
  void set_receiver(fabric::Receiver* receiver) override { below_.set_receiver(receiver); }
  bool link_up() const override { return true; }

 private:
  fabric::Port& below_;
  const bool active_;
};

class FlowExchange : private FrameExchange {
 public:
  FlowExchange(bool as_bytes, unsigned seed)
      : FrameExchange(seed, false, options(as_bytes),
                      [](auto&) { return std::numeric_limits<std::size_t>::max(); }) {}

  std::string run() {
    for (unsigned round = 0; round < 40; ++round) {
      // Often enough that both paths run, a key disappears and a flow is forgotten.
      if (random_() % 10 == 0) a_.register_memory();
      if (random_() % 10 == 0) b_.register_memory();
      for (auto n = random_() % 40; n != 0; --n) receive();
      for (auto n = random_() % 30; n != 0; --n) send();
      for (auto n = random_() % 4; n != 0; --n) pass();
      poll();
    }
    return finish(50);
  }

 private:
  static FrameMachine::Options options(bool as_bytes) {
    return {.send = {.requests = 64, .pieces = 2, .inline_size = 64},
            .receive = {.requests = 256, .pieces = 2},
            .wrap = [as_bytes](fabric::Port& below) {
              return std::make_unique<BytesPort>(below, as_bytes);
            }};
  }
  void receive() {
    const std::size_t size = random_() % 50 == 0 ? 200 : 2048;
    const auto at = random_() % (kExchangeMemory - size);
    const std::array pieces{b_.piece(at, size), b_.piece(at, size / 2)};
    const auto count = random_() % 8 == 0 ? 2u : 1u;
    (void)b_.receiver->post({.id = ++id_, .pieces = std::span(pieces).first(count)});
  }
  void send() {
    const auto payload = random_() % 6 == 0 ? random_() % 30 : random_() % 1400;
    const std::array<std::size_t, 4> inlined{18, 18, 18, 42};
    const auto in_request = inlined[random_() % inlined.size()];
    const auto at = random_() % (kExchangeMemory - 4096);
    const auto header = udp_headers(payload);
    std::ranges::copy(header, a_.memory.begin() + static_cast<std::ptrdiff_t>(at));
    const auto rest = kUdpHeaders + payload - in_request;
    std::array pieces{a_.piece(at + in_request, rest / 2), a_.piece(at + in_request, rest)};
    if (random_() % 200 == 0) pieces[1].lkey ^= 0xFF;
    const bool two = random_() % 8 == 0;
    if (two) pieces[1] = a_.piece(at + in_request + rest / 2, rest - rest / 2);
    (void)a_.sender->post({.id = ++id_,
                           .header = std::span(header).first(in_request),
                           .pieces = std::span(pieces).subspan(two ? 0 : 1),
                           .checksums = random_() % 8 != 0,
                           .signaled = random_() % 4 == 0});
  }
  std::vector<std::byte> udp_headers(std::size_t payload) {
    using Udp = wire::UdpLayout;
    auto bytes = headers(kUdpHeaders, 16, wire::Ipv4Layout::kSize + Udp::kSize + payload,
                         wire::IpProtocol::kUdp);
    const auto l4 = std::span(bytes).subspan(kL4);
    const util::MutableView<Udp> udp(l4);
    udp.set(Udp::source_port, 1000);
    udp.set(Udp::destination_port, 2000 + random_() / 3 % 2);
    udp.set(Udp::length, static_cast<std::uint32_t>(Udp::kSize + payload));
    return bytes;
  }

  static constexpr std::size_t kUdpHeaders = kL4 + wire::UdpLayout::kSize;
};

class CachedFlows : public ::testing::TestWithParam<unsigned> {};

TEST_P(CachedFlows, EverythingIsAsWithBytes) {
  const auto bytes = FlowExchange(true, GetParam()).run();
  const auto frames = FlowExchange(false, GetParam()).run();
  expect_same(bytes, frames);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CachedFlows, ::testing::Range(0u, 12u));

/// The bytes that a request writes into the ring, without its index.
std::vector<std::byte> block_of(connectx::FrameSendQueue& queue, std::span<std::byte> ring,
                                std::uint16_t counter, const FrameRequest& request) {
  EXPECT_EQ(queue.post(request), PostStatus::kOk);
  const auto block = ring.subspan(counter % 16 * std::size_t{64}, 64);
  std::vector<std::byte> bytes(block.begin(), block.end());
  bytes[1] = bytes[2] = std::byte{};
  EXPECT_TRUE(queue.complete(counter));
  return bytes;
}

// PRM 7.4.4.1: nothing of a request may leak into the next.
TEST(FrameSendQueue, ARequestLikeTheOneBeforeIsWrittenAsIfItWereTheFirst) {
  const connectx::FrameSendQueue::Limits limits{.requests = 16, .pieces = 1, .inline_size = 18};
  std::vector<std::byte> ring(16 * 64);
  connectx::FrameSendQueue queue;
  queue.attach(ring, limits, 5);
  std::mt19937 random(1);
  std::array<std::byte, 18> header{};
  for (std::uint16_t i = 0; i != 2000; ++i) {
    for (auto& byte : header) byte = std::byte(random());
    const Sge piece{random() * std::uint64_t{3}, 1 + static_cast<std::uint32_t>(random()) % 2000,
                    static_cast<std::uint32_t>(random())};
    const std::array<std::uint16_t, 4> sizes{0, 0, 0, 500};
    const FrameRequest request{.id = i,
                               .header = std::span(header).first(random() % 8 == 0 ? 14 : 18),
                               .pieces = {&piece, 1},
                               .checksums = random() % 8 != 0,
                               .segment_size = sizes[random() % 4],
                               .signaled = random() % 2 == 0};
    std::vector<std::byte> other(16 * 64);
    connectx::FrameSendQueue first;
    first.attach(other, limits, 5);
    // A shorter header leaves the old bytes behind it, so clear the ring first.
    std::ranges::fill(ring, std::byte{0});
    const auto bytes = block_of(queue, ring, i, request);
    ASSERT_EQ(bytes, block_of(first, other, 0, request)) << i;
    const auto control = std::span(ring).subspan(i % 16 * 64, 4);
    ASSERT_EQ(util::load_be32(control.data()) >> 8 & 0xFFFF, i);
  }
}

}  // namespace
}  // namespace softhca::driver::test

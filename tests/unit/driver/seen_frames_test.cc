// Frames of one flow take fast paths through driver, device and peer. Fast paths must not be
// observable, so each test runs twice and compares everything. In one run, every frame is
// serialized to bytes and rebuilt on its way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "connectx/device.h"
#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/frame_exchange.h"
#include "driver/in_process_host.h"
#include "driver/world.h"
#include "fabric/switch.h"
#include "util/inspected.h"
#include "wire/ethernet.h"
#include "wire/ipv4.h"
#include "wire/udp.h"

namespace softhca::driver::test {
namespace {

constexpr std::size_t kL4 = wire::EthernetLayout::kSize + wire::Ipv4Layout::kSize;
constexpr std::size_t kUdpHeaders = kL4 + wire::UdpLayout::kSize;
constexpr util::Time kNow(std::chrono::hours(1));

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

struct FlowMachine {
  FlowMachine(fabric::Switch& network, unsigned number, bool as_bytes,
              std::function<void()> progress)
      : port(network.create_port("p")),
        bytes_port(*port, as_bytes),
        device({.name = fmt::format("connectx{}", number),
                .mac = wire::MacAddress::from_u64(0x020000000000u + number),
                .node_guid = number,
                .clock = [] { return kNow; }},
               bytes_port),
        host(device, {.progress = std::move(progress), .clock = [] { return kNow; }}),
        memory(memory_of(number)) {
    std::ranges::fill(memory, std::byte{0});
  }
  /// Memory at the same address in both runs, because inspect() shows addresses.
  static std::span<std::byte> memory_of(unsigned number) {
    alignas(4096) static std::array<std::byte, kExchangeMemory> memories[2];
    return memories[number - 1];
  }
  void open() {
    hca = must(connectx::Hca::open(host));
    pd = must(connectx::ProtectionDomain::create(*hca));
    domain = must(connectx::TransportDomain::create(*hca));
    register_memory();
    cq = must(connectx::CompletionQueue::create(*hca, {.entries = 4096}));
    sender = must(connectx::FrameSender::create(
        *pd, *domain, {.cq = *cq, .send = {.requests = 64, .pieces = 2, .inline_size = 64}}));
    receiver = must(connectx::FrameReceiver::create(
        *pd, *domain, {.cq = *cq, .receive = {.requests = 256, .pieces = 2}}));
    must(receiver->take_all_frames());
  }
  void register_memory() {
    key = nullptr;
    key = must(connectx::MemoryKey::register_memory(*pd, memory, {}));
  }
  void close() {
    receiver = nullptr;
    sender = nullptr;
    cq = nullptr;
    key = nullptr;
    domain = nullptr;
    pd = nullptr;
    hca = nullptr;
  }
  Sge piece(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(length), key->key()};
  }

  std::unique_ptr<fabric::Port> port;
  BytesPort bytes_port;
  softhca::connectx::Device device;
  InProcessHost host;
  std::span<std::byte> memory;
  std::unique_ptr<connectx::Hca> hca;
  std::unique_ptr<connectx::ProtectionDomain> pd;
  std::unique_ptr<connectx::TransportDomain> domain;
  std::unique_ptr<connectx::MemoryKey> key;
  std::unique_ptr<connectx::CompletionQueue> cq;
  std::unique_ptr<connectx::FrameSender> sender;
  std::unique_ptr<connectx::FrameReceiver> receiver;
};

/// Two machines driven by a seed, and everything that an observer could record.
class FlowExchange {
 public:
  FlowExchange(bool as_bytes, unsigned seed)
      : random_(seed),
        network_({.queue_frames_max = seed % 3 == 0 ? 20u : 4096u, .trains = false}),
        a_(network_, 1, as_bytes, [this] { pass(); }),
        b_(network_, 2, as_bytes, [this] { pass(); }) {
    network_.set_tap(&log_);
    a_.open();
    b_.open();
    std::ranges::copy(pattern(kExchangeMemory, seed), a_.memory.begin());
  }
  ~FlowExchange() {
    // Closing one driver needs both devices to run.
    a_.close();
    b_.close();
    network_.set_tap(nullptr);
  }

  std::string run() {
    for (unsigned round = 0; round < 40; ++round) {
      // Often enough that both paths run, a key disappears and a flow is forgotten.
      if (random_() % 10 == 0) a_.register_memory();
      if (random_() % 10 == 0) b_.register_memory();
      for (auto n = random_() % 40; n != 0; --n) receive();
      for (auto n = random_() % 30; n != 0; --n) send();
      for (auto n = random_() % 4; n != 0; --n) pass();
      poll(a_);
      poll(b_);
    }
    for (int n = 0; n < 50; ++n) pass();
    poll(a_);
    poll(b_);
    log_.text += fmt::format("memory {:x}\n", hash_of(b_.memory));
    log_.text += softhca::test::inspected(a_.device, {});
    log_.text += softhca::test::inspected(b_.device, {});
    const auto& c = network_.counters();
    log_.text += fmt::format("switch {} {} {}\n", c.delivered, c.flooded, c.dropped_queue_full);
    return std::move(log_.text);
  }

 private:
  void pass() {
    for (auto* machine : {&a_, &b_}) {
      (void)machine->device.run(kNow);
      network_.deliver(std::numeric_limits<std::size_t>::max());
    }
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
    const auto header = headers(payload);
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
  std::vector<std::byte> headers(std::size_t payload) {
    using Ip = wire::Ipv4Layout;
    using Udp = wire::UdpLayout;
    std::vector<std::byte> bytes(kUdpHeaders);
    const std::uint64_t to = random_() % 16 == 0 ? 0x0100'5E00'0001u : 0x020000000002u;
    const wire::Ethernet ethernet{.destination = wire::MacAddress::from_u64(to),
                                  .source = wire::MacAddress::from_u64(0x020000000001u),
                                  .ether_type = wire::EtherType::kIpv4};
    ethernet.emit(util::MutableView<wire::EthernetLayout>(bytes));
    const auto l3 = std::span(bytes).subspan(wire::EthernetLayout::kSize);
    const util::MutableView<Ip> ip(l3);
    ip.set(Ip::version, 4);
    ip.set(Ip::ihl, 5);
    ip.set(Ip::total_length, static_cast<std::uint32_t>(Ip::kSize + Udp::kSize + payload));
    ip.set(Ip::identification, random_() % 0x10000);
    ip.set(Ip::ttl, 64);
    ip.set(Ip::protocol, static_cast<std::uint32_t>(wire::IpProtocol::kUdp));
    const auto l4 = std::span(bytes).subspan(kL4);
    const util::MutableView<Udp> udp(l4);
    udp.set(Udp::source_port, 1000);
    udp.set(Udp::destination_port, 2000 + random_() / 3 % 2);
    udp.set(Udp::length, static_cast<std::uint32_t>(Udp::kSize + payload));
    return bytes;
  }
  void poll(FlowMachine& machine) {
    Completion c;
    for (unsigned i = 0; i < 1000 && machine.cq->poll({&c, 1}) == 1; ++i) {
      log_.text += fmt::format("{} {} {} {} {} {}\n", c.id, to_string(c.status), c.qpn,
                               c.byte_count, c.l3_checksum_ok, c.l4_checksum_ok);
    }
  }

  std::mt19937 random_;
  fabric::Switch network_;
  FrameLog log_;
  FlowMachine a_;
  FlowMachine b_;
  std::uint64_t id_ = 0;
};

class SeenFrames : public ::testing::TestWithParam<unsigned> {};

TEST_P(SeenFrames, EverythingIsAsWithBytes) {
  const auto bytes = FlowExchange(true, GetParam()).run();
  const auto frames = FlowExchange(false, GetParam()).run();
  const auto differs =
      std::mismatch(bytes.begin(), bytes.end(), frames.begin(), frames.end()).first;
  const auto place = static_cast<std::size_t>(differs - bytes.begin());
  ASSERT_TRUE(bytes == frames) << "first difference at "
                               << bytes.substr(place - std::min<std::size_t>(place, 300), 500)
                               << "\n and " << frames.substr(place, 200);
  EXPECT_GT(bytes.size(), 10000u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SeenFrames, ::testing::Range(0u, 12u));

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

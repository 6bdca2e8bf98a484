// Packets of a large send travel as a train (ethernet/large_send.h). A train must not be
// observable, so each test runs twice, with and without trains, and compares everything.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "driver/frame_machine.h"
#include "fabric/switch.h"
#include "wire/ethernet.h"
#include "wire/ipv4.h"
#include "wire/tcp.h"

namespace softhca::driver::test {
namespace {

FrameMachine::Options options() {
  return {.send = {.requests = 64, .pieces = 20, .inline_size = 128},
          .receive = {.requests = 512, .pieces = 2}};
}

/// Two machines driven by a seed, and everything that an observer could record.
class TrainExchange {
 public:
  TrainExchange(bool trains, unsigned seed)
      : random_(seed),
        // In some runs, queues too short for what a turn sends.
        network_({.queue_frames_max = seed % 3 == 0 ? 20u : 4096u, .trains = trains}),
        a_(network_, 1, options(), [this] { pass(); }),
        b_(network_, 2, options(), [this] { pass(); }) {
    network_.set_tap(&log_);
    a_.open();
    b_.open();
    std::ranges::copy(pattern(kExchangeMemory, seed), a_.memory.begin());
  }
  ~TrainExchange() {
    // Closing one driver needs both devices to run.
    a_.close();
    b_.close();
    network_.set_tap(nullptr);
  }

  std::string run() {
    for (unsigned round = 0; round < 12; ++round) {
      for (auto n = random_() % 100; n != 0; --n) receive();
      for (auto n = random_() % 4; n != 0; --n) send();
      for (auto n = random_() % 4; n != 0; --n) pass();
      a_.poll(log_.text);
      b_.poll(log_.text);
    }
    for (int n = 0; n < 200; ++n) pass();
    a_.poll(log_.text);
    b_.poll(log_.text);
    return log_.text + end_of_exchange(a_, b_, network_);
  }

 private:
  void pass() {
    for (auto* machine : {&a_, &b_}) {
      (void)machine->device.run(kExchangeTime);
      // Deliver in limits that split trains between turns.
      network_.deliver(7 + random_() % 40);
    }
  }
  void receive() {
    const std::size_t size = random_() % 50 == 0 ? 200 : 2048;
    const auto at = random_() % (kExchangeMemory - size);
    const std::array pieces{b_.piece(at, size / 3), b_.piece(at + size / 3, size - size / 3)};
    (void)b_.receiver->post({.id = ++id_, .pieces = pieces});
  }
  void send() {
    const std::size_t size = random_() % 60000;
    const auto header = headers(size);
    std::vector<Sge> pieces;
    for (std::size_t done = 0; done < size && pieces.size() < 20;) {
      const auto left = size - done;
      const auto n = pieces.size() == 19 ? left : std::min<std::size_t>(left, 1 + random_() % 9000);
      pieces.push_back(a_.piece(random_() % (kExchangeMemory - 70000), n));
      if (random_() % 200 == 0) pieces.back().lkey ^= 0xFF;
      done += n;
    }
    const std::array mss{std::uint16_t{1000}, std::uint16_t{1460}, std::uint16_t{333},
                         std::uint16_t{5}};
    (void)a_.sender->post({.id = ++id_,
                           .header = header,
                           .pieces = pieces,
                           .checksums = random_() % 4 != 0,
                           .segment_size = mss[random_() % 20 == 0 ? 3 : random_() % 3]});
  }
  std::vector<std::byte> headers(std::size_t payload) {
    using Ip = wire::Ipv4Layout;
    using Tcp = wire::TcpLayout;
    std::vector<std::byte> bytes(kTcpHeaders);
    const std::uint64_t to = random_() % 8 == 0 ? 0x0100'5E00'0001u : 0x020000000002u;
    const wire::Ethernet ethernet{.destination = wire::MacAddress::from_u64(to),
                                  .source = wire::MacAddress::from_u64(0x020000000001u),
                                  .ether_type = wire::EtherType::kIpv4};
    ethernet.emit(util::MutableView<wire::EthernetLayout>(bytes));
    const auto l3 = std::span(bytes).subspan(wire::EthernetLayout::kSize);
    const util::MutableView<Ip> ip(l3);
    ip.set(Ip::version, 4);
    ip.set(Ip::ihl, 5);
    ip.set(Ip::total_length,
           static_cast<std::uint32_t>(std::min<std::size_t>(0xFFFF, payload + kTcpHeaders)));
    ip.set(Ip::identification, random_() % 0x10000);
    ip.set(Ip::ttl, 64);
    ip.set(Ip::protocol, static_cast<std::uint32_t>(wire::IpProtocol::kTcp));
    const util::MutableView<Tcp> tcp(l3.subspan(Ip::kSize));
    tcp.set(Tcp::sequence, static_cast<std::uint32_t>(random_()));
    tcp.set(Tcp::data_offset, Tcp::kSize / 4);
    tcp.set(Tcp::flags, random_() % 0x100);
    return bytes;
  }

  std::mt19937 random_;
  fabric::Switch network_;
  FrameLog log_;
  FrameMachine a_;
  FrameMachine b_;
  std::uint64_t id_ = 0;
};

class FrameTrains : public ::testing::TestWithParam<unsigned> {};

TEST_P(FrameTrains, EverythingIsAsPacketByPacket) {
  const auto packets = TrainExchange(false, GetParam()).run();
  const auto trains = TrainExchange(true, GetParam()).run();
  expect_same(packets, trains);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FrameTrains, ::testing::Range(0u, 12u));

}  // namespace
}  // namespace softhca::driver::test

// Packets of a large send travel as a train (ethernet/large_send.h). A train must not be
// observable, so each test runs twice, with and without trains, and compares everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "driver/frame_machine.h"
#include "wire/tcp.h"

namespace softhca::driver::test {
namespace {

FrameMachine::Options options() {
  return {.send = {.requests = 64, .pieces = 20, .inline_size = 128},
          .receive = {.requests = 512, .pieces = 2}};
}

class TrainExchange : private FrameExchange {
 public:
  /// Delivers in limits that split trains between turns.
  TrainExchange(bool trains, unsigned seed)
      : FrameExchange(seed, trains, options(), [](auto& random) { return 7 + random() % 40; }) {}

  std::string run() {
    for (unsigned round = 0; round < 12; ++round) {
      for (auto n = random_() % 100; n != 0; --n) receive();
      for (auto n = random_() % 4; n != 0; --n) send();
      for (auto n = random_() % 4; n != 0; --n) pass();
      poll();
    }
    return finish(200);
  }

 private:
  void receive() {
    const std::size_t size = random_() % 50 == 0 ? 200 : 2048;
    const auto at = random_() % (kExchangeMemory - size);
    const std::array pieces{b_.piece(at, size / 3), b_.piece(at + size / 3, size - size / 3)};
    (void)b_.receiver->post({.id = ++id_, .pieces = pieces});
  }
  void send() {
    const std::size_t size = random_() % 60000;
    const auto header = tcp_headers(size);
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
  std::vector<std::byte> tcp_headers(std::size_t payload) {
    using Tcp = wire::TcpLayout;
    auto bytes = headers(kTcpHeaders, 8, std::min<std::size_t>(0xFFFF, payload + kTcpHeaders),
                         wire::IpProtocol::kTcp);
    const auto l4 = std::span(bytes).subspan(kL4);
    const util::MutableView<Tcp> tcp(l4);
    tcp.set(Tcp::sequence, static_cast<std::uint32_t>(random_()));
    tcp.set(Tcp::data_offset, Tcp::kSize / 4);
    tcp.set(Tcp::flags, random_() % 0x100);
    return bytes;
  }
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

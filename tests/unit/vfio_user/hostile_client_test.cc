// A client that tries to hold up the other clients of its loop.
#include "vfio_user/hostile_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "pcie/bus_master.h"

namespace softhca {
namespace {

using namespace std::chrono_literals;
using namespace vfio_user::protocol;
using os::UniqueFd;
using test::bytes_of;
using test::event;
using test::HostileClientTest;
using test::memory_file;
using test::TestFunction;

// Each connection is new, and each gives the server something to log.
TEST_F(HostileClientTest, AClientThatConnectsAgainAndAgainDoesNotFloodTheLog) {
  unsigned lines = 0;
  util::set_log_sink([&lines](auto, auto) { ++lines; });
  const auto start = util::monotonic_now();
  const std::array<char, 64> nonsense{};
  for (int i = 0; i < 300; ++i) {
    const auto socket = os::connect_unix(path_, "test").value();
    ASSERT_EQ(::send(socket.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(nonsense.size()));
    std::array<char, 4096> reply;
    for (ssize_t got = 1; got != 0;) {
      loop_->turn(util::Time{});
      got = ::recv(socket.get(), reply.data(), reply.size(), MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN) break;
    }
  }
  const auto seconds = (util::monotonic_now() - start) / 1s + 1;
  util::set_log_sink(nullptr);
  EXPECT_GT(lines, 0u);
  EXPECT_LE(lines, 30u * static_cast<unsigned>(seconds)) << "ten of each kind a second";
}

TEST_F(HostileClientTest, OnlyAClientThatDoesNotReadItsRepliesWaitsForThem) {
  auto slow = negotiated();
  auto client = honest();
  const auto request =
      message(Command::kRegionRead, RegionAccess{.offset = 0, .region = 0, .count = 16384});
  constexpr int kRequests = 64;  // their replies are a megabyte, more than a socket holds
  for (int i = 0; i < kRequests; ++i) {
    // The socket buffers the requests without help of the loop.
    ASSERT_EQ(::send(slow.fd(), request.data(), request.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(request.size()));
  }
  const auto serve = [&] {
    for (int i = 0; i < 50; ++i) {
      turn();
      expect_served(client);
    }
  };
  EXPECT_TRUE(returns_alone(serve, [&slow] { ::shutdown(slow.fd(), SHUT_RDWR); }));
  EXPECT_TRUE(server_->connected());
  EXPECT_LT(function_.bytes_read, kRequests / 2 * 16384u) << "replies are not piled up either";
  for (int i = 0; i < kRequests; ++i) {
    const auto reply = slow.receive_reply();
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(reply->payload.size(), sizeof(RegionAccess) + 16384) << i;
  }
}

TEST_F(HostileClientTest, AReplyThatWaitsForItsReaderKeepsItsDescriptor) {
  const auto file = memory_file(8192);
  function_.shared_fd = file.get();
  auto slow = negotiated();
  constexpr int kRequests =
      400;  // their replies, each with a descriptor, exceed what a socket holds
  const RegionInfo request{
      .argsz = 64, .flags = 0, .index = 2, .cap_offset = 0, .size = 0, .offset = 0};
  std::vector<std::byte> requests;
  for (int i = 0; i < kRequests; ++i) {
    const auto one = message(Command::kDeviceGetRegionInfo, request);
    requests.insert(requests.end(), one.begin(), one.end());
  }
  ASSERT_EQ(::send(slow.fd(), requests.data(), requests.size(), MSG_DONTWAIT),
            std::ssize(requests));
  settle();
  for (int i = 0; i < kRequests; ++i) {
    const auto reply = slow.receive_reply();
    ASSERT_TRUE(reply) << i;
    ASSERT_EQ(reply->fds.size(), 1u) << i;
  }
}

TEST_F(HostileClientTest, AClientThatDoesNotReadIsAskedForNoMemory) {
  auto slow = negotiated();
  std::vector<std::byte> memory(4096);
  ASSERT_EQ(slow.map_remote_dma(1 << 20, memory), 0);
  const auto request =
      message(Command::kRegionRead, RegionAccess{.offset = 0, .region = 0, .count = 16384});
  constexpr int kRequests = 64;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_GT(::send(slow.fd(), request.data(), request.size(), MSG_DONTWAIT), 0);
  }
  settle();
  function_.dma_from = 1 << 20;
  turn();
  EXPECT_EQ(std::to_integer<int>(function_.memory[TestFunction::kDmaOk]), 2) << "it fails";
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(slow.receive_reply()) << i;
  settle();
  // The request that was queued for it is answered now, and the loop no longer waits.
  for (const auto& line : log_) EXPECT_EQ(line.find("unexpected reply"), std::string::npos) << line;
}

TEST_F(HostileClientTest, AClientThatDoesNotReadAndLeavesIsForgotten) {
  {
    auto slow = negotiated();
    const auto request =
        message(Command::kRegionRead, RegionAccess{.offset = 0, .region = 0, .count = 16384});
    for (int i = 0; i < 64; ++i) {
      ASSERT_GT(::send(slow.fd(), request.data(), request.size(), MSG_DONTWAIT), 0);
    }
    settle();
    EXPECT_TRUE(server_->connected());
  }
  settle();
  EXPECT_FALSE(server_->connected());
}

TEST_F(HostileClientTest, AFloodOfMessagesIsHandledALittleAtATime) {
  auto flooder = negotiated();
  auto client = honest();
  const std::uint32_t vector = 1;
  std::vector<std::byte> payload(sizeof(RegionAccess) + sizeof vector);
  const RegionAccess access{.offset = TestFunction::kDoorbell, .region = 0, .count = sizeof vector};
  std::memcpy(payload.data(), &access, sizeof access);
  std::memcpy(payload.data() + sizeof access, &vector, sizeof vector);
  const Header header{.message_id = 1,
                      .command = static_cast<std::uint16_t>(Command::kRegionWrite),
                      .message_size = static_cast<std::uint32_t>(sizeof header + payload.size()),
                      .flags = kFlagNoReply,
                      .error = 0};
  std::vector<std::byte> flood;
  constexpr std::size_t kMessages = 1000;
  for (std::size_t i = 0; i < kMessages; ++i) {
    const auto head = bytes_of(header);
    flood.insert(flood.end(), head.begin(), head.end());
    flood.insert(flood.end(), payload.begin(), payload.end());
  }
  ASSERT_EQ(::send(flooder.fd(), flood.data(), flood.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(flood.size()));
  // Doorbells are recorded as they come; the function raises one interrupt in each run().
  std::size_t seen = 0;
  unsigned turns = 0;
  while (seen < kMessages && turns < 1000) {
    const auto before = function_.doorbells.size();
    const auto runs = function_.runs;
    turn();
    ++turns;
    const auto done = std::min<std::size_t>(function_.runs - runs, before);
    const auto came = function_.doorbells.size() + done - before;
    EXPECT_LE(came, 200u) << "in one turn";
    seen += came;
  }
  EXPECT_GE(turns, 5u);
  EXPECT_EQ(seen, kMessages) << "none is lost";
  expect_served(client);
}

/// Writes Initiate Function Level Reset.
constexpr RegionWriteOne kFunctionReset{.offset = pcie::ConfigSpace::kExpressAt + 9,
                                        .region = kConfigRegion,
                                        .count = 1,
                                        .data = {std::byte{0x80}}};

// QEMU batches posted writes of BARs only.
TEST_F(HostileClientTest, ABatchOfResetsIsRefused) {
  auto hostile = negotiated();
  struct {
    std::uint64_t count = 100;
    std::array<RegionWriteOne, 100> writes;
  } batch;
  batch.writes.fill(kFunctionReset);
  const auto before = function_.resets;
  const auto reply = hostile.call(Command::kRegionWriteMulti, bytes_of(batch));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->error, static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(function_.resets, before);
  const auto& one = kFunctionReset;
  EXPECT_EQ(hostile.write_region(one.region, one.offset, std::span(one.data).first(1)), 0);
  EXPECT_EQ(function_.resets, before + 1);
}

TEST_F(HostileClientTest, WorkOfTheFunctionForAMessageIsCharged) {
  auto hostile = negotiated();
  function_.reset_work = 60'000;  // more than a visit
  const struct {
    RegionAccess access{.offset = kFunctionReset.offset, .region = kConfigRegion, .count = 1};
    std::byte data = kFunctionReset.data[0];
  } __attribute__((packed)) write;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(hostile.send_raw(message(Command::kRegionWrite, write, kFlagNoReply)));
  }
  const auto before = function_.resets;
  unsigned turns = 0;
  for (; function_.resets != before + 10; ++turns) {
    ASSERT_LT(turns, 100u);
    const auto resets = function_.resets;
    turn();
    EXPECT_LE(function_.resets, resets + 2) << "a visit of the socket, and one of what it brought";
  }
  EXPECT_GE(turns, 5u);
}

// Each write of the MSI-X table stops the threads of the device, and waits for their work.
constexpr std::uint64_t kMsixTable = 0x2000;

TEST_F(HostileClientTest, AMessageStopsTheThreadsOfTheDeviceOnce) {
  function_.have_threads();
  auto hostile = negotiated();
  const auto stops_of = [this](auto&& send) {
    const auto before = function_.counted.stops();
    send();
    EXPECT_TRUE(function_.counted.run());
    return function_.counted.stops() - before;
  };
  const std::array<std::byte, 640> pieces{};
  struct {
    std::uint64_t count = 100;
    std::array<RegionWriteOne, 100> writes;
  } batch;
  batch.writes.fill({.offset = kMsixTable, .region = 0, .count = 4, .data = {}});
  EXPECT_EQ(stops_of([&] { EXPECT_EQ(hostile.write_region(0, kMsixTable, pieces), 0); }), 1u);
  EXPECT_EQ(
      stops_of([&] { EXPECT_TRUE(hostile.call(Command::kRegionWriteMulti, bytes_of(batch))); }),
      1u);
  EXPECT_EQ(stops_of([&] { EXPECT_EQ(hostile.write_region(0, 0x40, pieces), 0); }), 0u);
}

TEST_F(HostileClientTest, AStopOfTheThreadsOfTheDeviceIsCharged) {
  function_.have_threads();
  auto hostile = negotiated();
  const struct {
    RegionAccess access{.offset = kMsixTable, .region = 0, .count = 4};
    std::uint32_t data = 0;
  } __attribute__((packed)) write;
  constexpr unsigned kMessages = 20;
  for (unsigned i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(hostile.send_raw(message(Command::kRegionWrite, write, kFlagNoReply)));
  }
  const auto before = function_.counted.stops();
  for (unsigned turns = 0; function_.counted.stops() != before + kMessages; ++turns) {
    ASSERT_LT(turns, 100u);
    const auto stops = function_.counted.stops();
    turn();
    EXPECT_LE(function_.counted.stops(), stops + 4) << "two in a visit of 50 us, and two visits";
  }
}

TEST_F(HostileClientTest, AFullEventfdDelaysNoServer) {
  auto hostile = negotiated();
  const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int fds[] = {fd.get()};
  ASSERT_EQ(
      hostile.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {}, fds), 0);
  // The client shares the open file.
  ASSERT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
  const std::uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(fd.get(), &full, sizeof full), 8);
  function_.doorbells = {0, 0, 0};
  EXPECT_FALSE(test::waits_until_read(fd.get(), [this] { turn(); }));
}

TEST_F(HostileClientTest, AClientThatIsSlowToWakeLosesItsSession) {
  // By these clocks, each wakeup takes 10 ms.
  static util::Time time;
  time = {};
  const auto clock = [] { return time += 10ms; };
  serve_with({.clocks = {.now = clock, .thread_time = clock}});
  auto hostile = connect();
  auto client = honest();
  for (int i = 0; i < 5; ++i) (void)hostile.negotiate();
  settle();
  EXPECT_FALSE(server_->connected());
  EXPECT_TRUE(std::ranges::any_of(log_, [](const auto& line) {
    return line.find("the client is slow to wake") != std::string::npos;
  }));
  expect_served(client);
}

TEST_F(HostileClientTest, AnAccessHasOneDeadlineHoweverManyMessagesItTakes) {
  // Each answer takes 40 ms.
  constexpr int kInTime = 4;
  static std::atomic<int> answers, looks;
  answers = looks = 0;
  const auto clock = [] {
    ++looks;
    return util::Time(1h) + answers.load() * 40ms;
  };
  serve_with({.reply_timeout = 150ms, .clocks = {.now = clock}});
  std::atomic<bool> ended = false;
  auto client = connect();
  ASSERT_TRUE(client.negotiate(R"({"capabilities":{"max_data_xfer_size":1}})"));
  pcie::set_bus_master(function_, true);
  ASSERT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
  // Each byte comes late, but before a deadline that restarts at each byte. An answer waits for the
  // look at the clock with which the server begins to wait. When the time of the access is over, it
  // waits for another look: a server that ends the access takes none.
  std::thread slow([&] {
    vfio_user::MessageStream stream{UniqueFd(::dup(client.fd()))};
    while (!ended) {
      if (!stream.wait_readable(util::monotonic_now() + 10ms)) continue;
      stream.receive();
      while (const auto request = stream.next()) {
        while (looks < (answers < kInTime ? 1 : 2) && !ended) std::this_thread::yield();
        looks = 0;
        ++answers;
        auto header = request->header;
        header.flags = kTypeReply;
        header.message_size = sizeof(Header) + sizeof(DmaAccess) + 1;
        const auto access = load<DmaAccess>(request->payload);
        stream.send(header, bytes_of(access), bytes_of(std::uint8_t{1}));
      }
    }
  });
  function_.dma_from = 0x8000;  // reads eight bytes
  turn();
  ended = true;
  slow.join();
  EXPECT_EQ(util::load_le64(&function_.memory[TestFunction::kDmaOk]), 2u) << "failed";
}

TEST_F(HostileClientTest, AnAccessEndsForAClientThatSendsEverythingButItsReply) {
  // In time for a thousand looks at the clock, two for each poll of the socket: the number of polls
  // ends it.
  static std::atomic<int> looks;
  looks = 0;
  const auto clock = [] { return util::Time(1h) + looks++ * 100ms; };
  serve_with({.reply_timeout = 100s, .clocks = {.now = clock}});
  std::atomic<bool> ended = false;
  auto client = negotiated();
  pcie::set_bus_master(function_, true);
  ASSERT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
  std::thread talkative([&] {
    while (!ended && client.post_region(0, 0, bytes_of(std::uint64_t{1}))) {
      std::this_thread::sleep_for(100us);
    }
  });
  (void)pcie::RemoteAccesses::take();
  function_.dma_from = 0x8000;
  turn();
  ended = true;
  talkative.join();
  EXPECT_EQ(util::load_le64(&function_.memory[TestFunction::kDmaOk]), 2u) << "failed";
  const auto counted = pcie::RemoteAccesses::take();
  EXPECT_GT(counted, 50u) << "each look at the socket is work";
  EXPECT_LE(counted, 256u);
}

}  // namespace
}  // namespace softhca

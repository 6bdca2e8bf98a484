// Attacks of a hostile vfio-user client with its sockets, descriptors, memory and answers.
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "eventually.h"
#include "neighbours.h"
#include "vfio_user/client.h"
#include "vfio_user/message_stream.h"

namespace softhca::neighbours {
namespace {

using namespace vfio_user::protocol;
using os::UniqueFd;
using vfio_user::Client;

class ClientNeighbours : public Neighbours {
 protected:
  Client connect() const {
    auto client = must(Client::connect(hostile(), {.timeout = 20s}));
    (void)must(client.negotiate());
    const std::array command{std::byte{0x06}, std::byte{0x00}};  // memory space, bus master
    EXPECT_EQ(client.write_region(kConfigRegion, 4, command), 0);
    return client;
  }
  static UniqueFd memory_file(std::size_t size) {
    UniqueFd fd(::memfd_create("neighbour", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    return fd;
  }
  /// A whole command: a header, then `size` bytes of `payload`.
  template <class T>
  static std::vector<std::byte> message(Command command, const T& payload) {
    const Header header{.message_id = 7,
                        .command = static_cast<std::uint16_t>(command),
                        .message_size = sizeof header + sizeof payload,
                        .flags = 0,
                        .error = 0};
    std::vector<std::byte> out(header.message_size);
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, &payload, sizeof payload);
    return out;
  }
};

SOFTHCA_WITH_AND_WITHOUT_ISOLATE(ClientNeighbours);

// Finding 2.
TEST_P(ClientNeighbours, MemoryThatIsTakenAwayUnderTrafficEndsItsOwnersSessionAlone) {
  for (int round = 0; round < 5; ++round) {
    auto client = connect();
    const auto file = memory_file(16 << 20);
    ASSERT_EQ(client.map_dma(0, 16 << 20, file.get(), 0), 0);
    // The command queue is in memory that disappears. The next doorbell makes the device read it.
    ASSERT_EQ(::ftruncate(file.get(), 0), 0);
    const std::array<std::byte, 4> low{std::byte{0}, std::byte{0x10}, std::byte{0}, std::byte{0}};
    const std::array<std::byte, 4> high{};
    (void)client.write_region(0, 0x10, high);
    (void)client.write_region(0, 0x14, low);
    const std::array<std::byte, 4> bell{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
    (void)client.write_region(0, 0x18, bell);
    EXPECT_TRUE(client.wait_closed());
  }
  expect_unharmed();
}

// Finding 3.
TEST_P(ClientNeighbours, AsManyMapsAsItCanMakeLeaveRoomForOthers) {
  const auto before = server_.maps();
  {
    auto client = connect();
    const auto file = memory_file(4096);
    std::uint64_t made = 0;
    while (client.map_dma(made * 8192, 4096, file.get(), 0) == 0) ++made;
    EXPECT_GT(made, 1000u);
    const LoopHca another_process_fits(socket(kThird), 5, 4096);
  }
  expect_unharmed();
  const auto after = before + (kSanitized ? 500 : 50);
  EXPECT_TRUE(eventually([&] { return server_.maps() <= after; }));
}

// Finding 5.
TEST_P(ClientNeighbours, UnreadRepliesDelayNoNeighbour) {
  auto client = connect();
  const auto read = message(Command::kRegionRead,
                            RegionAccess{.offset = 0, .region = kConfigRegion, .count = 4096});
  // Until the server takes no more of them, because it cannot send the replies.
  constexpr unsigned kMost = 10'000;
  unsigned all = 0, before = 0;
  do {
    before = all;
    while (all != kMost &&
           ::send(client.fd(), read.data(), read.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
      ++all;
    }
    ASSERT_TRUE(honest_.advances(3, 20s) && mover_.advances(3, 20s)) << "after " << all;
  } while (all != before && all != kMost);
  EXPECT_LT(all, kMost);
  {
    const auto gone = std::move(client);
  }
  expect_unharmed();
}

// Finding 6: one byte at a time, each just before its deadline.
TEST_P(ClientNeighbours, MemoryByMessagesOfASlowOwnerHasOneDeadlineForAnAccess) {
  auto client = must(Client::connect(hostile(), {.timeout = 20s}));
  (void)must(client.negotiate(R"({"capabilities":{"max_data_xfer_size":1}})"));
  const std::array command{std::byte{0x06}, std::byte{0x00}};
  ASSERT_EQ(client.write_region(kConfigRegion, 4, command), 0);
  std::vector<std::byte> memory(1 << 20);
  ASSERT_EQ(client.map_remote_dma(0, memory), 0);
  // A command queue whose first command belongs to the device (PRM Table 96).
  memory[0x1000] = std::byte{7};
  memory[0x103f] = std::byte{1};
  const std::array<std::byte, 4> low{std::byte{0}, std::byte{0}, std::byte{0x10}, std::byte{0}};
  const std::array<std::byte, 4> high{},
      bell{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
  (void)client.post_region(0, 0x10, high);
  (void)client.post_region(0, 0x14, low);
  for (const auto end = util::monotonic_now() + kFlood; util::monotonic_now() < end;) {
    (void)client.post_region(0, 0x18, bell);
    std::this_thread::sleep_for(50ms);
    if (!client.serve()) break;
  }
  {
    const auto gone = std::move(client);
  }
  expect_unharmed();
}

/// Answers each request of the server for memory that is all zeros, `late`. Returns how many there
/// were until `end`.
unsigned answer_late(int socket, util::Duration late, util::Time end) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  vfio_user::MessageStream stream{UniqueFd(::dup(socket))};
  unsigned requests = 0;
  while (stream.wait_readable(end)) {
    if (stream.receive() != vfio_user::MessageStream::Received::kData) break;
    while (const auto request = stream.next()) {
      ++requests;
      std::this_thread::sleep_for(late);
      const auto access = load<DmaAccess>(request->payload);
      const bool reads = request->header.command == static_cast<std::uint16_t>(Command::kDmaRead);
      const auto size = reads ? std::min<std::size_t>(access.count, kZeros.size()) : 0;
      auto header = request->header;
      header.flags = kTypeReply;
      header.message_size = static_cast<std::uint32_t>(sizeof header + sizeof access + size);
      stream.send(header, std::as_bytes(std::span(&access, 1)), std::span(kZeros).first(size));
    }
  }
  return requests;
}

// The loop waits for each answer. A client has 500 ms in five seconds, and no more if it connects
// again: some forty answers of 40 ms here, or more on a busy machine, where this takes longer.
TEST_P(ClientNeighbours, AnswersThatAreJustInTimeHaveABudgetForAllConnections) {
  constexpr unsigned kConnections = 12;
  const auto begin = util::monotonic_now();
  unsigned requests = 0;
  for (unsigned i = 0; i != kConnections; ++i) {
    auto client = connect();
    ASSERT_EQ(client.map_dma(0, 1 << 20, -1, 0), 0);
    const std::array<std::byte, 4> low{std::byte{0}, std::byte{0}, std::byte{0x10}, std::byte{0}};
    const std::array<std::byte, 4> high{},
        bell{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
    (void)client.post_region(0, 0x10, high);
    (void)client.post_region(0, 0x14, low);
    // Until the server asks no more: a new connection must not make it ask again.
    unsigned quiet = 0;
    for (const auto end = util::monotonic_now() + 1s; quiet != 2 && util::monotonic_now() < end;) {
      (void)client.post_region(0, 0x18, bell);
      const auto now = answer_late(client.fd(), 40ms, util::monotonic_now() + 50ms);
      requests += now;
      quiet = now == 0 && requests != 0 ? quiet + 1 : 0;
    }
  }
  EXPECT_GT(requests, 0u);
  EXPECT_LT(requests, 20u * static_cast<unsigned>((util::monotonic_now() - begin) / 5s + 2));
  expect_unharmed();
}

TEST_P(ClientNeighbours, ConnectionsWithNonsenseFloodNoLog) {
  const auto begin = util::monotonic_now();
  const auto before = server_.log_size();
  std::vector<std::byte> nonsense(sizeof(Header), std::byte{0xff});
  for (int i = 0; i != 1000; ++i) {
    auto client = must(Client::connect(hostile(), {.timeout = 20s}));
    (void)client.send_raw(nonsense);
    EXPECT_TRUE(client.wait_closed());
  }
  // The log has so many lines a second.
  const auto spans = static_cast<std::uint64_t>((util::monotonic_now() - begin) / 5s + 1);
  EXPECT_LT(server_.log_size() - before, spans * (32u << 10));
  expect_unharmed();
}

// Finding 7.
TEST_P(ClientNeighbours, DescriptorsBehindMessagesThatNeverEndLeaveSomeForOthers) {
  const auto before = server_.descriptors();
  {
    std::vector<Client> clients;
    clients.push_back(connect());
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const std::array<int, 8> fds{event.get(), event.get(), event.get(), event.get(),
                                 event.get(), event.get(), event.get(), event.get()};
    const Header head{.message_id = 1,
                      .command = static_cast<std::uint16_t>(Command::kDeviceSetIrqs),
                      .message_size = 1 << 20,
                      .flags = 0,
                      .error = 0};
    (void)clients[0].send_raw(std::as_bytes(std::span(&head, 1)), fds);
    const std::array<std::byte, 1> more{};
    for (int i = 0; i < 500; ++i) {
      if (!clients[0].send_raw(more, fds)) break;
    }
    EXPECT_LT(server_.descriptors(), before + 100);
  }
  expect_unharmed();
}

// Finding 4.
TEST_P(ClientNeighbours, ABlockingEventfdDelaysNoNeighbour) {
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  {
    LoopHca loop(hostile(), 2, 4096);  // brings up a device that signals events by MSI-X
  }
  auto client = connect();
  std::vector<int> fds(8, event.get());
  ASSERT_EQ(
      client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 8, {}, fds), 0);
  ASSERT_EQ(::fcntl(event.get(), F_SETFL, 0), 0);
  const std::uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(event.get(), &full, sizeof full), 8);
  for (unsigned vector = 0; vector < 8; ++vector) {
    (void)client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, vector, 1);
  }
  {
    const auto gone = std::move(client);
  }
  expect_unharmed();
}

TEST_P(ClientNeighbours, ClientsThatAreKilledLeaveNothingBehind) {
  const auto descriptors = server_.descriptors();
  for (int i = 0; i < 50; ++i) {
    const auto child = ::fork();
    if (child == 0) {
      // The child uses only the path, because the parent's threads do not exist in it.
      try {
        LoopHca loop(hostile(), 2, 1 << 20);
        std::vector<LoopPair> pairs;
        for (int j = 0; j < 4; ++j) pairs.push_back(loop.make_pair());
        const auto piece = loop.piece(0, 1 << 18);
        for (;;) {
          for (auto& pair : pairs) {
            (void)pair.from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                        .pieces = {&piece, 1},
                                        .remote_address = loop.iova(1 << 19),
                                        .rkey = loop.key()});
          }
          std::array<driver::Completion, 64> done;
          (void)loop.cq().poll(done);
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 20));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  expect_unharmed();
  EXPECT_TRUE(eventually([&] { return server_.descriptors() <= descriptors; }));
}

}  // namespace
}  // namespace softhca::neighbours

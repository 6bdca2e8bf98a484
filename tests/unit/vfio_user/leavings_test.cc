// The maps and descriptors that a client leaves behind: the janitor removes them, and until
// then they count in the client's share.
#include <gtest/gtest.h>

#include "eventually.h"
#include "os/slow_close.h"
#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using os::UniqueFd;
using test::bytes_of;
using test::event;
using test::kPage;
using test::memory_file;
using test::TestFunction;
using vfio_user::Server;

class LeavingsTest : public test::ServedFunction {
 protected:
  /// Sends an unwanted descriptor. The janitor gets it, and is busy closing it until release().
  void hold_up_janitor(vfio_user::Client& client) {
    send(client, Command::kDeviceReset, 0, std::array{slow_.fd.get()});
    // Close it before the server receives it, because the last close is the slow one.
    slow_.fd.reset();
    EXPECT_NE(client.receive_reply()->error, 0u);
  }
  /// The janitor's thread of maps and eventfds is busy until release(). No client can do that.
  void hold_up_janitor_of_maps() {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(slow_.fd));
    server_->janitor().close_eventfds(std::move(fds));
  }
  static Header header(Command command, std::size_t payload) {
    return {.message_id = 1,
            .command = static_cast<std::uint16_t>(command),
            .message_size = static_cast<std::uint32_t>(sizeof(Header) + payload),
            .flags = 0,
            .error = 0};
  }
  template <class T>
  static void send(vfio_user::Client& client, Command command, const T& payload,
                   std::span<const int> fds = {}) {
    std::vector<std::byte> bytes(sizeof(Header) + sizeof payload);
    const auto head = header(command, sizeof payload);
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &payload, sizeof payload);
    ASSERT_TRUE(client.send_raw(bytes, fds));
  }
  static DmaMap map_of(std::uint64_t address) {
    return {.argsz = sizeof(DmaMap),
            .flags = kDmaMapReadable | kDmaMapWriteable,
            .offset = 0,
            .address = address,
            .size = kPage};
  }
  /// Pages of the clients' shared file that are mapped in this process.
  static std::size_t pages_mapped() { return test::mappings_of("memfd:test"); }

  test::SlowClose slow_{30};
};

TEST_F(LeavingsTest, UnmappedIsWhatTheDeviceDoesNotReachAnyMore) {
  serve_with({.max_maps = 100});
  auto client = negotiated();
  const auto file = memory_file(kPage);
  for (std::uint64_t i = 0; i != 60; ++i) {
    ASSERT_EQ(client.map_dma(i * 2 * kPage, kPage, file.get(), 0), 0);
  }
  EXPECT_EQ(pages_mapped(), 60u);
  hold_up_janitor_of_maps();
  const auto generation = function_.dma().generation();
  EXPECT_EQ(client.unmap_dma(0, 120 * kPage), 0);
  EXPECT_TRUE(function_.dma().mappings().empty());
  EXPECT_NE(function_.dma().generation(), generation);
  EXPECT_EQ(pages_mapped(), 60u) << "that takes its time";
  // These 40 and the 60 that are not yet gone reach the limit, so the next one waits.
  for (std::uint64_t i = 0; i != 40; ++i) {
    ASSERT_EQ(client.map_dma(i * kPage, kPage, file.get(), 0), 0) << i;
  }
  send(client, Command::kDmaMap, map_of(500 * kPage), std::array{file.get()});
  settle();
  EXPECT_EQ(function_.dma().mappings().size(), 40u);
  EXPECT_TRUE(server_->connected());
  slow_.release();
  const auto reply = client.receive_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->error, 0u);
  EXPECT_EQ(function_.dma().mappings().size(), 41u);
  // It was accepted once one of the 60 was gone.
  EXPECT_TRUE(eventually([&] { return pages_mapped() == 41; }));
}

TEST_F(LeavingsTest, AClientThatLeavesWhileItWaitsForTheJanitorIsForgotten) {
  serve_with({.max_maps = 64});
  {
    auto client = negotiated();
    const auto file = memory_file(kPage);
    for (std::uint64_t i = 0; i != 64; ++i) {
      ASSERT_EQ(client.map_dma(i * kPage, kPage, file.get(), 0), 0);
    }
    hold_up_janitor_of_maps();
    EXPECT_EQ(client.unmap_dma(0, 64 * kPage), 0);
    send(client, Command::kDmaMap, map_of(0), std::array{file.get()});
    settle();
    EXPECT_TRUE(server_->connected());
  }
  settle();
  EXPECT_FALSE(server_->connected());
  EXPECT_TRUE(function_.dma().mappings().empty());
  slow_.release();
  auto next = negotiated();
}

TEST_F(LeavingsTest, ADescriptorThatDoesNotCloseKeepsNoMapsOfTheNext) {
  serve_with({.max_maps = 64});
  {
    auto hostile = negotiated();
    hold_up_janitor(hostile);
  }
  settle();
  const auto file = memory_file(kPage);
  for (int i = 0; i < 3; ++i) {
    auto honest = negotiated();
    for (std::uint64_t at = 0; at != 64; ++at) {
      ASSERT_EQ(honest.map_dma(at * kPage, kPage, file.get(), 0), 0) << i;
    }
    ASSERT_EQ(honest.unmap_dma(0, 64 * kPage), 0);
    // Waits for the janitor, and is answered before the descriptor is closed.
    send(honest, Command::kDmaMap, map_of(0), std::array{file.get()});
    const auto reply = honest.receive_reply();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->error, 0u);
  }
  EXPECT_GE(server_->janitor().pending_descriptors(), 1u) << "it is still being closed";
  slow_.release();
}

TEST_F(LeavingsTest, DescriptorsThatCannotBeClosedYetCount) {
  serve_with({.max_eventfds = 20});
  const auto before = test::open_fds();
  {
    auto client = negotiated();
    hold_up_janitor(client);
    const auto one = event();
    for (int i = 0; i < 100; ++i) send(client, Command::kDeviceReset, 0, std::array{one.get()});
    settle();
    // The test has the client's socket and its eventfd. The server has the socket, the share, and
    // the descriptors of one read.
    EXPECT_LT(test::open_fds(), before + 3 + 20 + vfio_user::kMaxWaitingFds);
  }
  settle();
  EXPECT_FALSE(server_->connected());
  auto waiting = connect();
  settle();
  EXPECT_FALSE(server_->connected()) << "there is no room for another one's";
  slow_.release();
  EXPECT_TRUE(waiting.negotiate());
}

TEST_F(LeavingsTest, TheCostOfARequestCounts) {
  auto client = negotiated();
  const auto file = memory_file(kPage);
  constexpr std::uint64_t kMaps = 3000;
  for (std::uint64_t i = 1; i <= kMaps; ++i) {
    ASSERT_EQ(client.map_dma(i * kPage, kPage, file.get(), 0), 0);
  }
  const auto cost = [&](const auto& send_one) {
    send_one();
    loop_->turn(util::Time{});
    const auto done = loop_->events().budget().done();
    EXPECT_TRUE(client.receive_reply());
    return done;
  };
  // A map before 3000 others moves them all. One behind them does not.
  const auto last = cost(
      [&] { send(client, Command::kDmaMap, map_of((kMaps + 1) * kPage), std::array{file.get()}); });
  const auto first =
      cost([&] { send(client, Command::kDmaMap, map_of(0), std::array{file.get()}); });
  EXPECT_LT(last, 10'000);
  EXPECT_GT(first, last + 10'000);
  const auto fd = event();
  ASSERT_EQ(client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {},
                            std::array{fd.get()}),
            0);
  const auto trigger = [&](std::uint32_t count) {
    return cost([&] {
      send(client, Command::kDeviceSetIrqs,
           IrqSet{.argsz = sizeof(IrqSet),
                  .flags = kIrqSetDataNone | kIrqSetActionTrigger,
                  .index = kMsixIrqIndex,
                  .start = 0,
                  .count = count});
    });
  };
  EXPECT_GT(trigger(TestFunction::kVectors), trigger(1) + 20'000);
  // Frames that refer to disappearing memory are copied, and the client that removes it is charged.
  function_.dma().set_before_loss([] { return 50'000; });
  EXPECT_GT(cost([&] {
              send(client, Command::kDmaUnmap,
                   DmaUnmap{.argsz = sizeof(DmaUnmap), .flags = 0, .address = 0, .size = kPage});
            }),
            50'000);
  function_.dma().set_before_loss(nullptr);
}

}  // namespace
}  // namespace softhca

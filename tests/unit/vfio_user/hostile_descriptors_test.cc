// Descriptors and memory of a client that tries to hold up or end the others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "os/slow_close.h"
#include "vfio_user/hostile_client.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using os::UniqueFd;
using test::bytes_of;
using test::event;
using test::HostileClientTest;
using test::memory_file;
using test::TestFunction;

TEST_F(HostileClientTest, ClosingReceivedDescriptorsDelaysNoServer) {
  auto hostile = negotiated();
  auto client = honest();
  test::SlowClose slow(1000);
  const auto request = message(Command::kDmaMap, DmaMap{.argsz = sizeof(DmaMap),
                                                        .flags = kDmaMapReadable,
                                                        .offset = 0,
                                                        .address = 0,
                                                        .size = 4096});
  const int fds[] = {slow.fd.get()};
  ASSERT_TRUE(hostile.send_raw(request, fds));
  slow.fd.reset();  // the last reference is in the socket to the server
  EXPECT_TRUE(slow.lets_return([this] { turns(); }));
  const auto reply = hostile.receive_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->error, static_cast<std::uint32_t>(EINVAL)) << "a socket is no memory";
  expect_served(client);
  slow.release();
}

TEST_F(HostileClientTest, ClosingUnreadDescriptorsDelaysNoServer) {
  test::SlowClose slow(1000);
  {
    auto hostile = negotiated();
    // An impossible message ends the session. The bytes behind it stay in the socket.
    const auto bad = message(Command::kDeviceReset, std::uint64_t{0});
    auto head = load<Header>(bad);
    head.message_size = 1;
    ASSERT_TRUE(hostile.send_raw(bytes_of(head)));
    const int fds[] = {slow.fd.get()};
    ASSERT_TRUE(hostile.send_raw(bad, fds));
    slow.fd.reset();
  }
  EXPECT_TRUE(slow.lets_return([this] { turns(); }));
  EXPECT_FALSE(server_->connected());
  slow.release();
}

TEST_F(HostileClientTest, DescriptorsBeyondTheLimitDelayNoServer) {
  // If a receiver has no room for descriptors, the kernel closes them in the receiver's time.
  auto hostile = negotiated();
  auto client = honest();
  test::SlowClose slow(1000);
  const auto file = memory_file(4096);
  std::array<int, 200> fds;
  fds.fill(file.get());
  fds.back() = slow.fd.get();
  test::send_with_fds(hostile.fd(), message(Command::kDeviceReset, std::uint64_t{0}), fds);
  slow.fd.reset();
  EXPECT_TRUE(slow.lets_return([this] { turns(); }));
  EXPECT_FALSE(server_->connected());
  expect_served(client);
  slow.release();
}

TEST_F(HostileClientTest, DescriptorsThatWaitForTheirMessageAreFew) {
  auto hostile = negotiated();
  auto client = honest();
  const auto file = memory_file(4096);
  // A message of a megabyte, sent one byte and sixteen descriptors at a time.
  const Header head{.message_id = 1,
                    .command = static_cast<std::uint16_t>(Command::kRegionWrite),
                    .message_size = vfio_user::kMaxMessageSize,
                    .flags = 0,
                    .error = 0};
  std::array<int, 16> fds;
  fds.fill(file.get());
  const auto before = static_cast<std::ptrdiff_t>(test::open_fds());
  ASSERT_TRUE(hostile.send_raw(bytes_of(head)));
  std::ptrdiff_t most = 0;
  for (int i = 0; i < 20; ++i) {
    const auto bytes = bytes_of(head);
    if (!hostile.send_raw(bytes, fds)) break;
    turn();
    most = std::max(most, static_cast<std::ptrdiff_t>(test::open_fds()) - before);
  }
  EXPECT_LE(most, std::ptrdiff_t{2 * vfio_user::kMaxWaitingFds});
  EXPECT_TRUE(hostile.wait_closed());
  expect_served(client);
}

TEST_F(HostileClientTest, FilesThatAreNotInMemoryAreRefused) {
  // A page fault in a file calls its file system, which may be the client's own.
  auto client = negotiated();
  const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(program);
  EXPECT_EQ(client.map_dma(0, 4096, program.get(), 0, kDmaMapReadable), EINVAL);
  const auto memory = memory_file(4096);
  EXPECT_EQ(client.map_dma(0, 4096, memory.get(), 0), 0);
}

TEST_F(HostileClientTest, AFileThatIsShortenedEndsItsOwnersSessionAlone) {
  auto hostile = negotiated();
  auto client = honest();
  const auto file = memory_file(1 << 20);
  ASSERT_EQ(hostile.map_dma(0, 1 << 20, file.get(), 0), 0);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  function_.dma_from = 0x8000;
  turn();
  settle();
  EXPECT_FALSE(server_->connected());
  EXPECT_TRUE(std::ranges::any_of(log_, [](const auto& line) {
    return line.find("memory that the client shares is not there any more") != std::string::npos;
  }));
  EXPECT_TRUE(other_server_->connected());
  expect_served(client);
  auto next = negotiated();
  expect_served(next);
}

// The kernel maps whole huge pages, and neither replaces nor unmaps a part of one.
TEST_F(HostileClientTest, APartOfAHugePageIsServedAndEndsNoServer) {
  const UniqueFd file(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (!file) GTEST_SKIP() << "the kernel has no hugetlbfs";
  ASSERT_EQ(::ftruncate(file.get(), 8 << 20), 0);
  auto hostile = negotiated();
  auto client = honest();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(hostile.map_dma(0, 4096, file.get(), (2 << 20) - 4096), 0);
    ASSERT_EQ(hostile.map_dma(4096, 4096, file.get(), 2 << 20), 0);
    ASSERT_EQ(hostile.unmap_dma(0, 4096), 0);
    ASSERT_EQ(hostile.unmap_dma(4096, 4096), 0);
    ASSERT_EQ(test::mappings_of("memfd:huge"), 0u);
  }
  ASSERT_EQ(hostile.map_dma(0, 4096, file.get(), 4096), 0);
  // The device reads the page, or gets SIGBUS if the machine has no huge page left.
  function_.dma_from = 0;
  turn();
  settle();
  expect_served(client);
}

TEST_F(HostileClientTest, MemoryOfOneThatGoesWhileAnotherIsWrittenToEndsItsOwnersSession) {
  // The function copies from one client's memory to another's by a system call. EFAULT is handled
  // the same way.
  auto hostile = negotiated();
  const auto file = memory_file(1 << 20);
  ASSERT_EQ(hostile.map_dma(0, 1 << 20, file.get(), 0), 0);
  auto* place = function_.dma().translate(0x8000, 8, pcie::DmaAccess::kRead);
  ASSERT_NE(place, nullptr);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  vfio_user::MessageStream out{UniqueFd(ends[0])}, in{UniqueFd(ends[1])};
  const Header header{.message_id = 1,
                      .command = static_cast<std::uint16_t>(Command::kDmaWrite),
                      .message_size = sizeof header + 8,
                      .flags = 0,
                      .error = 0};
  ASSERT_TRUE(out.send(header, {place, 8}));
  ASSERT_TRUE(out.flush());
  EXPECT_EQ(in.receive(), vfio_user::MessageStream::Received::kData);
  EXPECT_TRUE(in.has_message());
  settle();
  EXPECT_FALSE(server_->connected());
}

TEST_F(HostileClientTest, EachClientHasAtMostItsShareOfMapsAndDescriptors) {
  serve_with({.max_maps = 3, .max_eventfds = 5});
  auto client = connect();
  const auto agreed = client.negotiate(R"({"capabilities":{"max_dma_maps":65535}})");
  ASSERT_TRUE(agreed);
  EXPECT_NE(agreed->find(R"("max_dma_maps":3)"), std::string::npos) << *agreed;
  const auto file = memory_file(4096);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(client.map_dma(i * 4096, 4096, file.get(), 0), 0);
  EXPECT_EQ(client.map_dma(3 * 4096, 4096, file.get(), 0), ENOSPC);
  ASSERT_EQ(client.unmap_dma(0, 4096), 0);
  EXPECT_EQ(client.map_dma(3 * 4096, 4096, file.get(), 0), 0);
  const auto fd = event();
  const int fds[] = {fd.get(), fd.get(), fd.get()};
  constexpr auto kEventfd = kIrqSetDataEventfd | kIrqSetActionTrigger;
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 0, 3, {}, fds), 0);
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 3, 3, {}, fds), EMFILE);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 0), 0);
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 3, 3, {}, fds), 0);
}

}  // namespace
}  // namespace softhca

// Requests of a broken or hostile client for DMA memory, regions and interrupts: the result is an
// error reply or the end of the connection, never more.
#include <gtest/gtest.h>

#include "os/event_signal.h"
#include "vfio_user/malformed.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using test::bytes_of;
using test::event;
using test::MalformedTest;
using test::memory_file;

// --- DMA ---

TEST_F(MalformedTest, DmaRegionTooBigIsRefused) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  const int fd = file.get();
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 8192), std::span(&fd, 1)), einval)
      << "beyond the file";
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 1ull << 60), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096, 4096), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096, 1ull << 63), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096, UINT64_MAX - 4095), std::span(&fd, 1)),
            einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(UINT64_MAX - 4095, 8192), std::span(&fd, 1)),
            einval);
  EXPECT_TRUE(function_.dma().mappings().empty());
}

TEST_F(MalformedTest, DmaRegionThatOverlapsIsRefusedWithEexist) {
  auto client = negotiated();
  const auto file = memory_file(16384);
  const int fd = file.get();
  ASSERT_EQ(error(client, Command::kDmaMap, map(0x10000, 8192), std::span(&fd, 1)), 0u);
  const auto eexist = static_cast<std::uint32_t>(EEXIST);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0x10000, 8192), std::span(&fd, 1)), eexist);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0x11000, 8192), std::span(&fd, 1)), eexist);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0xf000, 8192), std::span(&fd, 1)), eexist);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0x11000, 4096)), eexist) << "by messages";
  EXPECT_EQ(function_.dma().mappings().size(), 1u);
}

TEST_F(MalformedTest, DmaRegionsTooManyAreRefused) {
  auto client = negotiated();
  static std::array<std::byte, 1> memory;
  // Fill from the highest address: otherwise 65535 messages would take a second.
  for (std::uint64_t i = 0; i < vfio_user::kMaxDmaMaps; ++i) {
    ASSERT_TRUE(
        function_.dma().map((1ull << 32) + i * 2, 1, memory.data(), pcie::DmaAccess::kRead));
  }
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096)), static_cast<std::uint32_t>(ENOSPC));
}

TEST_F(MalformedTest, DmaMapWithBadFieldsIsRefused) {
  auto client = negotiated();
  const auto file = memory_file(8192);
  const int fd = file.get();
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  EXPECT_EQ(error(client, Command::kDmaMap, DmaMap{32, 0, 0, 0, 4096}, std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, DmaMap{32, 7, 0, 0, 4096}, std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 0), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(1, 4096), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4095), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096, 1), std::span(&fd, 1)), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096, 4096)), einval)
      << "offset without descriptor";
}

TEST_F(MalformedTest, DmaMapOfWhatIsNotMemoryIsRefused) {
  auto client = negotiated();
  const auto not_memory = event();
  const int fd = not_memory.get();
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096), std::span(&fd, 1)),
            static_cast<std::uint32_t>(EINVAL));
}

TEST_F(MalformedTest, DmaUnmapThatMatchesNoMapIsRefused) {
  auto client = negotiated();
  const auto file = memory_file(8192);
  ASSERT_EQ(client.map_dma(0x10000, 8192, file.get(), 0), 0);
  const auto enoent = static_cast<std::uint32_t>(ENOENT);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x10000, 4096}), enoent);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x11000, 4096}), enoent);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x11000, 0x10000}), enoent);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x10000, 0}),
            static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x10000, UINT64_MAX}),
            static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0x20000, 0x100000}), enoent);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 1, 0x10000, 8192}),
            static_cast<std::uint32_t>(ENOTSUP));
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 2, 0x10000, 8192}),
            static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(function_.dma().mappings().size(), 1u);
}

// --- regions ---

TEST_F(MalformedTest, AccessesOutsideOfARegionAreRefused) {
  auto client = negotiated();
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  const RegionAccess bad[] = {
      {16384, 0, 4}, {16381, 0, 4}, {UINT64_MAX, 0, 4}, {UINT64_MAX - 3, 0, 8}, {0, 1, 4},
      {0, 6, 4},     {0, 8, 4},     {0, 9, 4},          {0, 0xffffffff, 4},     {4096, 7, 1},
      {4093, 7, 4},  {0, 0, 0},     {0, 0, 0xffffffff}, {0, 0, 16385}};
  for (const auto& access : bad) {
    EXPECT_EQ(error(client, Command::kRegionRead, access), einval)
        << access.region << " at " << access.offset << " count " << access.count;
  }
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, RegionWriteWhoseDataIsNotItsCountIsRefused) {
  auto client = negotiated();
  struct {
    RegionAccess access{0, 0, 8};
    std::byte data[4] = {};
    std::byte rest[4] = {};
  } request;
  auto bytes = bytes_of(request);
  EXPECT_EQ(client.call(Command::kRegionWrite, bytes.first(20))->error,
            static_cast<std::uint32_t>(EINVAL));
  request.access.count = 4;
  EXPECT_EQ(client.call(Command::kRegionWrite, bytes)->error, static_cast<std::uint32_t>(EINVAL));
}

TEST_F(MalformedTest, RegionWriteMultiIsAllOrNothing) {
  auto client = negotiated();
  struct {
    std::uint64_t count = 2;
    RegionWriteOne writes[2] = {{.offset = 0, .region = 0, .count = 1, .data = {std::byte{1}}},
                                {.offset = 0, .region = 0, .count = 9, .data = {}}};
  } request;
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  EXPECT_EQ(error(client, Command::kRegionWriteMulti, request), einval);
  request.writes[1] = {.offset = 1 << 20, .region = 0, .count = 1, .data = {}};
  EXPECT_EQ(error(client, Command::kRegionWriteMulti, request), einval);
  request.count = UINT64_MAX;
  EXPECT_EQ(error(client, Command::kRegionWriteMulti, request), einval);
  // A count whose product with the size of a write wraps around to a small number.
  request.count = (UINT64_MAX / 24) + 3;
  EXPECT_EQ(error(client, Command::kRegionWriteMulti, request), einval);
  EXPECT_EQ(function_.memory[0], std::byte{0});
}

TEST_F(MalformedTest, RegionWriteMultiHasAtMost4096Writes) {
  auto client = negotiated();
  const auto ask = [&](std::uint64_t count) {
    std::vector<std::byte> payload(sizeof count + count * sizeof(RegionWriteOne));
    util::store_le64(payload.data(), count);
    const RegionWriteOne one{.offset = 0, .region = 0, .count = 1, .data = {std::byte{1}}};
    for (std::uint64_t i = 0; i != count; ++i) {
      std::memcpy(&payload[sizeof count + i * sizeof one], &one, sizeof one);
    }
    return client.call(Command::kRegionWriteMulti, payload)->error;
  };
  EXPECT_EQ(ask(4097), static_cast<std::uint32_t>(E2BIG));
  EXPECT_EQ(function_.memory[0], std::byte{0});
  EXPECT_EQ(ask(4096), 0u);
  EXPECT_EQ(function_.memory[0], std::byte{1});
}

TEST_F(MalformedTest, InfoOfWhatDoesNotExistIsRefused) {
  auto client = negotiated();
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionInfo, RegionInfo{32, 0, 9, 0, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionInfo, RegionInfo{32, 0, UINT32_MAX, 0, 0, 0}),
            einval);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionIoFds, RegionIoFds{16, 0, 9, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionIoFds, RegionIoFds{16, 1, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetIrqInfo, IrqInfo{16, 0, 5, 0}), einval);
}

// --- interrupts ---

TEST_F(MalformedTest, SetIrqsOutsideOfTheVectorsIsRefused) {
  auto client = negotiated();
  constexpr auto kTrigger = kIrqSetDataNone | kIrqSetActionTrigger;
  EXPECT_EQ(client.set_irqs(kTrigger, kMsixIrqIndex, 40, 1), EINVAL);
  EXPECT_EQ(client.set_irqs(kTrigger, kMsixIrqIndex, 39, 2), EINVAL);
  EXPECT_EQ(client.set_irqs(kTrigger, kMsixIrqIndex, 1, UINT32_MAX), EINVAL);
  EXPECT_EQ(client.set_irqs(kTrigger, kMsixIrqIndex, UINT32_MAX, UINT32_MAX), EINVAL);
  EXPECT_EQ(client.set_irqs(kTrigger, 0, 0, 1), EINVAL) << "there is no INTx";
  EXPECT_EQ(client.set_irqs(kTrigger, 5, 0, 0), EINVAL);
  EXPECT_EQ(client.set_irqs(kTrigger, kMsixIrqIndex, 1, 0), EINVAL) << "count 0 with a start";
}

TEST_F(MalformedTest, SetIrqsWithBadFlagsIsRefused) {
  auto client = negotiated();
  for (const std::uint32_t flags : {0u, 0x01u, 0x20u, 0x23u, 0x19u, 0x30u, 0x61u, 0xffffffffu}) {
    EXPECT_EQ(client.set_irqs(flags, kMsixIrqIndex, 0, 1), EINVAL) << flags;
  }
}

TEST_F(MalformedTest, SetIrqsWithBadDataIsRefused) {
  auto client = negotiated();
  const std::array<std::byte, 3> three{};
  EXPECT_EQ(client.set_irqs(kIrqSetDataBool | kIrqSetActionTrigger, kMsixIrqIndex, 0, 4, three),
            EINVAL);
  EXPECT_EQ(client.set_irqs(kIrqSetDataBool | kIrqSetActionTrigger, kMsixIrqIndex, 0, 2, three),
            EINVAL);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 3, three),
            EINVAL);
}

TEST_F(MalformedTest, SetIrqsWithBadDescriptorsIsRefusedAndClosesThem) {
  auto client = negotiated();
  const auto good = event();
  const auto file = memory_file(4096);
  os::EventSignal::instance();  // opens its own descriptors on first use
  const auto before = test::open_fds();
  constexpr auto kEventfd = kIrqSetDataEventfd | kIrqSetActionTrigger;
  const int fds[] = {good.get(), good.get()};
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 0, 3, {}, fds), EINVAL)
      << "fewer than the count";
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 0, 1, {}, fds), EINVAL)
      << "more than the count";
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 2, {}, fds),
            EINVAL);
  EXPECT_EQ(client.set_irqs(kIrqSetDataEventfd | kIrqSetActionMask, kMsixIrqIndex, 0, 2, {}, fds),
            ENOTSUP);
  const int wrong[] = {good.get(), file.get()};
  EXPECT_EQ(client.set_irqs(kEventfd, kMsixIrqIndex, 0, 2, {}, wrong), EINVAL) << "not an eventfd";
  settle();
  EXPECT_EQ(test::open_fds_after(before), before);
}

TEST_F(MalformedTest, ABrokenPipeInPlaceOfAnEventfdIsRefused) {
  auto client = negotiated();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  os::UniqueFd pipe(ends[1]);
  const int fd = pipe.get();
  EXPECT_EQ(client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {},
                            std::span(&fd, 1)),
            EINVAL);
}

}  // namespace
}  // namespace softhca

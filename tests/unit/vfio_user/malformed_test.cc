// Messages of a broken or hostile client: the result is an error reply or the end of the
// connection, never more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "vfio_user/event_signal.h"
#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using test::bytes_of;
using test::event;
using test::memory_file;

class MalformedTest : public test::ServedFunction {
 protected:
  /// The errno with which the server refuses `payload`.
  template <class T>
  std::uint32_t error(vfio_user::Client& client, Command command, const T& payload,
                      std::span<const int> fds = {}) {
    const auto reply = client.call(command, payload, fds);
    EXPECT_TRUE(reply.has_value()) << reply.error().message;
    if (!reply) return 0;
    EXPECT_TRUE(reply->error == 0 || reply->payload.empty()) << "an error reply is only a header";
    return reply->error;
  }
  std::uint32_t error_with_size(vfio_user::Client& client, Command command, std::size_t size) {
    const std::vector<std::byte> payload(size);
    const auto reply = client.call(command, payload);
    EXPECT_TRUE(reply.has_value());
    return reply ? reply->error : 0;
  }
  bool still_works(vfio_user::Client& client) {
    std::uint32_t id = 0;
    return client.read_region(kConfigRegion, 0, std::as_writable_bytes(std::span(&id, 1))) == 0;
  }
  static DmaMap map(std::uint64_t address, std::uint64_t size, std::uint64_t offset = 0) {
    return {
        .argsz = sizeof(DmaMap), .flags = 3, .offset = offset, .address = address, .size = size};
  }
  static Header header(Command command, std::uint32_t size, std::uint32_t flags = 0) {
    return {.message_id = 9,
            .command = static_cast<std::uint16_t>(command),
            .message_size = size,
            .flags = flags,
            .error = 0};
  }
};

// --- header ---

TEST_F(MalformedTest, TruncatedHeaderAndDisconnectEndTheSession) {
  {
    auto client = negotiated();
    ASSERT_TRUE(client.send_raw(std::array<std::byte, 7>{}));
    settle();
    EXPECT_TRUE(server_->connected()) << "the rest may still come";
  }
  settle();
  EXPECT_FALSE(server_->connected());
  auto next = negotiated();
  EXPECT_TRUE(still_works(next));
}

TEST_F(MalformedTest, AMessageMayComeByteByByte) {
  auto client = negotiated();
  const auto head = header(Command::kDeviceReset, sizeof(Header));
  for (const auto byte : bytes_of(head)) {
    ASSERT_TRUE(client.send_raw(std::span(&byte, 1)));
    settle();
  }
  EXPECT_EQ(client.receive_reply()->error, 0u);
}

TEST_F(MalformedTest, MessageSizeBelowTheHeaderClosesTheConnection) {
  for (const std::uint32_t size : {0u, 1u, 15u}) {
    auto client = negotiated();
    ASSERT_TRUE(client.send_raw(bytes_of(header(Command::kDeviceReset, size))));
    EXPECT_TRUE(client.wait_closed()) << size;
  }
}

TEST_F(MalformedTest, MessageSizeAboveTheMaximumClosesTheConnection) {
  for (const std::uint32_t size : {vfio_user::kMaxMessageSize + 1, 0x80000000u, 0xffffffffu}) {
    auto client = negotiated();
    ASSERT_TRUE(client.send_raw(bytes_of(header(Command::kRegionWrite, size))));
    EXPECT_TRUE(client.wait_closed()) << size;
  }
}

TEST_F(MalformedTest, AnUnexpectedReplyIsDropped) {
  auto client = negotiated();
  ASSERT_TRUE(client.send_raw(bytes_of(header(Command::kDeviceReset, sizeof(Header), kTypeReply))));
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, UnknownMessageTypeIsRefused) {
  auto client = negotiated();
  ASSERT_TRUE(client.send_raw(bytes_of(header(Command::kDeviceReset, sizeof(Header), 2))));
  EXPECT_EQ(client.receive_reply()->error, static_cast<std::uint32_t>(EINVAL));
}

TEST_F(MalformedTest, UnknownFlagsAreRefused) {
  auto client = negotiated();
  for (const std::uint32_t flags : {kFlagError, 1u << 6, 1u << 31}) {
    ASSERT_TRUE(client.send_raw(bytes_of(header(Command::kDeviceReset, sizeof(Header), flags))));
    EXPECT_EQ(client.receive_reply()->error, static_cast<std::uint32_t>(EINVAL));
  }
}

TEST_F(MalformedTest, UnknownCommandsAreRefused) {
  auto client = negotiated();
  for (const int command : {0, 19, 0x7fff, 0xffff}) {
    EXPECT_EQ(error_with_size(client, static_cast<Command>(command), 8),
              static_cast<std::uint32_t>(ENOSYS));
  }
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, CommandsOfTheServerAreRefused) {
  auto client = negotiated();
  EXPECT_EQ(error(client, Command::kDmaRead, DmaAccess{0, 8}), static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(error(client, Command::kDmaWrite, DmaAccess{0, 8}), static_cast<std::uint32_t>(EINVAL));
}

TEST_F(MalformedTest, MigrationAndFeaturesAreRefusedAsNotOffered) {
  auto client = negotiated();
  EXPECT_EQ(error_with_size(client, Command::kDirtyPages, 16), static_cast<std::uint32_t>(ENOTSUP));
  EXPECT_EQ(error_with_size(client, Command::kMigDataRead, 8), static_cast<std::uint32_t>(ENOTSUP));
  EXPECT_EQ(error_with_size(client, Command::kMigDataWrite, 8),
            static_cast<std::uint32_t>(ENOTSUP));
  EXPECT_EQ(error_with_size(client, Command::kDeviceFeature, 8),
            static_cast<std::uint32_t>(ENOTTY));
}

TEST_F(MalformedTest, ErrorsOfACommandWithoutReplyStayInTheLog) {
  auto client = negotiated();
  log_.clear();
  ASSERT_TRUE(client.post_region(5, 0, std::array<std::byte, 4>{}));
  EXPECT_TRUE(still_works(client)) << "the first reply is that of the next command";
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], ::testing::HasSubstr("REGION_WRITE (10) refused: outside of the region"));
}

TEST_F(MalformedTest, RefusalsDoNotFloodTheLog) {
  auto client = negotiated();
  log_.clear();
  for (int i = 0; i < 200; ++i) error_with_size(client, static_cast<Command>(99), 0);
  EXPECT_LT(log_.size(), 40u);
}

TEST_F(MalformedTest, EveryCommandRefusesAPayloadOfTheWrongSize) {
  auto client = negotiated();
  const std::pair<Command, std::size_t> sizes[] = {
      {Command::kDmaMap, 31},
      {Command::kDmaMap, 33},
      {Command::kDmaUnmap, 23},
      {Command::kDmaUnmap, 25},
      {Command::kDeviceGetInfo, 15},
      {Command::kDeviceGetInfo, 0},
      {Command::kDeviceGetRegionInfo, 31},
      {Command::kDeviceGetRegionIoFds, 15},
      {Command::kDeviceGetIrqInfo, 15},
      {Command::kDeviceSetIrqs, 19},
      {Command::kRegionRead, 15},
      {Command::kRegionRead, 17},
      {Command::kRegionWrite, 15},
      {Command::kRegionWriteMulti, 7},
      {Command::kRegionWriteMulti, 9},
      {Command::kDeviceReset, 1},
  };
  for (const auto& [command, size] : sizes) {
    EXPECT_EQ(error_with_size(client, command, size), static_cast<std::uint32_t>(EINVAL))
        << command_name(static_cast<std::uint16_t>(command)) << " with " << size;
  }
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, ArgszBelowTheStructureIsRefused) {
  auto client = negotiated();
  const auto einval = static_cast<std::uint32_t>(EINVAL);
  EXPECT_EQ(error(client, Command::kDeviceGetInfo, DeviceInfo{15, 0, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionInfo, RegionInfo{31, 0, 0, 0, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetRegionIoFds, RegionIoFds{15, 0, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceGetIrqInfo, IrqInfo{15, 0, 2, 0}), einval);
  EXPECT_EQ(error(client, Command::kDeviceSetIrqs, IrqSet{19, 0x21, 2, 0, 0}), einval);
  EXPECT_EQ(error(client, Command::kDmaMap, DmaMap{31, 3, 0, 0, 4096}), einval);
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{23, 0, 0, 4096}), einval);
}

// --- VERSION ---

TEST_F(MalformedTest, EverythingBeforeVersionIsRefusedAndEndsTheConnection) {
  for (int command = 2; command <= 18; ++command) {
    auto client = connect();
    EXPECT_EQ(error_with_size(client, static_cast<Command>(command), 16),
              static_cast<std::uint32_t>(EINVAL));
    EXPECT_TRUE(client.wait_closed());
  }
}

TEST_F(MalformedTest, ASecondVersionIsRefused) {
  auto client = negotiated();
  EXPECT_EQ(error(client, Command::kVersion, Version{0, 1}), static_cast<std::uint32_t>(EINVAL));
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, AnotherMajorVersionEndsTheConnection) {
  auto client = connect();
  EXPECT_EQ(error(client, Command::kVersion, Version{1, 0}), static_cast<std::uint32_t>(EINVAL));
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(MalformedTest, BadVersionDataEndsTheConnection) {
  const std::string deep(8000, '[');
  for (const auto& text :
       {std::string(""), std::string("{"), std::string("[]"), std::string("7"), deep,
        std::string(R"({"capabilities":[]})"),
        std::string(R"({"capabilities":{"max_msg_fds":"many"}})"),
        std::string(R"({"capabilities":{"max_data_xfer_size":-1}})"),
        std::string(R"({"capabilities":{"max_data_xfer_size":0}})"),
        std::string(R"({"capabilities":{"write_multiple":1}})"), std::string(70000, ' ')}) {
    auto client = connect();
    EXPECT_FALSE(client.negotiate(text)) << text.substr(0, 60);
    EXPECT_TRUE(client.wait_closed());
  }
}

TEST_F(MalformedTest, VersionDataNeedsItsNul) {
  auto client = connect();
  struct {
    Version version{0, 0};
    char text[2] = {'{', '}'};
  } request;
  EXPECT_EQ(error(client, Command::kVersion, request), static_cast<std::uint32_t>(EINVAL));
}

TEST_F(MalformedTest, VersionShorterThanAVersionIsRefused) {
  auto client = connect();
  EXPECT_EQ(error_with_size(client, Command::kVersion, 3), static_cast<std::uint32_t>(EINVAL));
}

// --- descriptors ---

TEST_F(MalformedTest, DescriptorsWhereNoneBelongAreRefusedAndClosed) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  const int fd = file.get();
  const auto before = test::open_fds();
  EXPECT_EQ(error(client, Command::kDeviceGetInfo, DeviceInfo{16, 0, 0, 0}, std::span(&fd, 1)),
            static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(error(client, Command::kDmaUnmap, DmaUnmap{24, 0, 0, 4096}, std::span(&fd, 1)),
            static_cast<std::uint32_t>(EINVAL));
  settle();
  EXPECT_EQ(test::open_fds_after(before), before);
  EXPECT_TRUE(still_works(client));
}

TEST_F(MalformedTest, MoreDescriptorsThanAMapTakesAreRefusedAndClosed) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  const int fds[] = {file.get(), file.get()};
  const auto before = test::open_fds();
  EXPECT_EQ(error(client, Command::kDmaMap, map(0, 4096), fds), static_cast<std::uint32_t>(EINVAL));
  EXPECT_EQ(test::open_fds_after(before), before);
}

TEST_F(MalformedTest, MoreDescriptorsThanMaxMsgFdsCloseTheConnection) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  const auto before = test::open_fds();
  std::array<int, 20> fds;
  fds.fill(file.get());
  // The client enforces the same limit, so send the message by hand.
  test::send_with_fds(client.fd(), bytes_of(header(Command::kDeviceReset, sizeof(Header))), fds);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(test::open_fds_after(before - 1), before - 1) << "the session's socket is gone too";
}

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
  vfio_user::EventSignal::instance();  // opens its own descriptors on first use
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
  vfio_user::UniqueFd pipe(ends[1]);
  const int fd = pipe.get();
  EXPECT_EQ(client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {},
                            std::span(&fd, 1)),
            EINVAL);
}

}  // namespace
}  // namespace softhca

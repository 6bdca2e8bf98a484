// Messages of a broken or hostile client: the result is an error reply or the end of the
// connection, never more.
#include "vfio_user/malformed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using test::bytes_of;
using test::MalformedTest;
using test::memory_file;

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

}  // namespace
}  // namespace softhca

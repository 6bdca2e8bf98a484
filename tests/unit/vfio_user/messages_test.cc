// Each message of the protocol, well-formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using test::bytes_of;
using test::event;
using test::memory_file;
using test::signals;
using test::TestFunction;

class MessagesTest : public test::ServedFunction {};

template <class T>
T structure(const util::Result<vfio_user::Client::Reply>& reply) {
  EXPECT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error, 0u);
  EXPECT_GE(reply->payload.size(), sizeof(T));
  if (!reply || reply->payload.size() < sizeof(T)) return {};
  return load<T>(reply->payload);
}

TEST_F(MessagesTest, VersionAnswersWithOurValueOfEachProposedCapability) {
  auto client = connect();
  const auto text = client.negotiate(
      R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096,"pgsizes":4096,)"
      R"("max_dma_maps":10,"migration":{"pgsize":4096},"write_multiple":true}})");
  ASSERT_TRUE(text);
  const auto capabilities = nlohmann::json::parse(*text)["capabilities"];
  EXPECT_EQ(capabilities["max_msg_fds"], 16);
  EXPECT_EQ(capabilities["max_data_xfer_size"], 1 << 20);
  EXPECT_EQ(capabilities["pgsizes"], 4096);
  EXPECT_EQ(capabilities["max_dma_maps"], 65535);
  EXPECT_EQ(capabilities["write_multiple"], true);
  EXPECT_FALSE(capabilities.contains("migration"));
}

TEST_F(MessagesTest, VersionReplyOffersNothingThatWasNotProposed) {
  auto client = connect();
  EXPECT_EQ(client.negotiate(R"({"capabilities":{}})").value(), R"({"capabilities":{}})");
}

TEST_F(MessagesTest, VersionDataIsOptional) {
  auto client = connect();
  const auto version =
      structure<Version>(client.call(Command::kVersion, Version{.major = 0, .minor = 0}));
  EXPECT_EQ(version.major, 0);
  EXPECT_EQ(version.minor, 0);
}

TEST_F(MessagesTest, MinorVersionInTheReplyIsNoGreaterThanProposed) {
  auto client = connect();
  const auto version =
      structure<Version>(client.call(Command::kVersion, Version{.major = 0, .minor = 77}));
  EXPECT_EQ(version.minor, kMinor);
}

TEST_F(MessagesTest, QemusProposalGetsAReplyThatFitsItsBuffer) {
  const std::string proposal =
      R"({"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, )"
      R"("max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, )"
      R"("max_dma_maps": 65535, "write_multiple": true}})";
  auto client = connect();
  const auto text = client.negotiate(proposal);
  ASSERT_TRUE(text);
  EXPECT_LE(text->size(), proposal.size());
}

TEST_F(MessagesTest, DeviceInfoIsAPciDeviceWithReset) {
  auto client = negotiated();
  const auto info = structure<DeviceInfo>(
      client.call(Command::kDeviceGetInfo,
                  DeviceInfo{.argsz = 16, .flags = 0, .num_regions = 0, .num_irqs = 0}));
  EXPECT_EQ(info.argsz, 16u);
  EXPECT_EQ(info.flags, kDeviceFlagReset | kDeviceFlagPci);
  EXPECT_EQ(info.num_regions, 9u);
  EXPECT_EQ(info.num_irqs, 5u);
}

RegionInfo region_request(std::uint32_t index, std::uint32_t argsz = sizeof(RegionInfo)) {
  return {.argsz = argsz, .flags = 0, .index = index, .cap_offset = 0, .size = 0, .offset = 0};
}

TEST_F(MessagesTest, RegionsAreTheBarsAndConfigSpace) {
  auto client = negotiated();
  const std::uint64_t sizes[] = {16384, 0, 8192, 0, 0, 0, 0, 4096, 0};
  for (std::uint32_t index = 0; index < 9; ++index) {
    const auto info =
        structure<RegionInfo>(client.call(Command::kDeviceGetRegionInfo, region_request(index)));
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.argsz, sizeof(RegionInfo));
    EXPECT_EQ(info.size, sizes[index]);
    EXPECT_EQ(info.flags, sizes[index] != 0 ? kRegionFlagRead | kRegionFlagWrite : 0u);
  }
}

TEST_F(MessagesTest, SharedPagesOfABarComeWithADescriptorAndTheirAreas) {
  const auto file = memory_file(8192);
  function_.shared_fd = file.get();
  auto client = negotiated();
  const auto cut = client.call(Command::kDeviceGetRegionInfo, region_request(2));
  const auto info = structure<RegionInfo>(cut);
  EXPECT_EQ(info.flags, kRegionFlagRead | kRegionFlagWrite | kRegionFlagMmap | kRegionFlagCaps);
  EXPECT_EQ(info.argsz, 64u) << "the size needed for everything";
  EXPECT_EQ(cut->payload.size(), sizeof(RegionInfo)) << "but only what was asked for is sent";
  EXPECT_TRUE(cut->fds.empty());

  const auto whole = client.call(Command::kDeviceGetRegionInfo, region_request(2, info.argsz));
  ASSERT_EQ(whole->payload.size(), 64u);
  ASSERT_EQ(whole->fds.size(), 1u);
  const auto capability = load<SparseMmapCapability>(whole->payload, info.cap_offset);
  EXPECT_EQ(capability.id, kSparseMmapId);
  EXPECT_EQ(capability.nr_areas, 1u);
  const auto area = load<SparseArea>(whole->payload, info.cap_offset + sizeof capability);
  EXPECT_EQ(area.offset, 4096u);
  EXPECT_EQ(area.size, 4096u);
  char byte = 'x';
  EXPECT_EQ(::pwrite(whole->fds[0].get(), &byte, 1, 4096), 1);
  byte = 0;
  EXPECT_EQ(::pread(file.get(), &byte, 1, 4096), 1);
  EXPECT_EQ(byte, 'x') << "the same file";
}

TEST_F(MessagesTest, RegionIoFdsIsAnEmptyList) {
  auto client = negotiated();
  const auto fds = structure<RegionIoFds>(
      client.call(Command::kDeviceGetRegionIoFds,
                  RegionIoFds{.argsz = 16, .flags = 0, .index = 0, .count = 0}));
  EXPECT_EQ(fds.argsz, 16u);
  EXPECT_EQ(fds.count, 0u);
}

TEST_F(MessagesTest, OnlyMsiAndMsixHaveInterrupts) {
  auto client = negotiated();
  for (std::uint32_t index = 0; index < kIrqIndexCount; ++index) {
    const auto info = structure<IrqInfo>(client.call(
        Command::kDeviceGetIrqInfo, IrqInfo{.argsz = 16, .flags = 0, .index = index, .count = 0}));
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.count, index == kMsixIrqIndex  ? TestFunction::kVectors
                          : index == kMsiIrqIndex ? TestFunction::kMsiVectors
                                                  : 0u);
  }
}

TEST_F(MessagesTest, RegionWriteAndReadReachTheFunction) {
  auto client = negotiated();
  const std::uint32_t value = 0x12345678;
  EXPECT_EQ(client.write_region(0, 0x40, bytes_of(value)), 0);
  std::uint32_t back = 0;
  EXPECT_EQ(client.read_region(0, 0x40, std::as_writable_bytes(std::span(&back, 1))), 0);
  EXPECT_EQ(back, value);
}

TEST_F(MessagesTest, ConfigSpaceIsRegionSeven) {
  auto client = negotiated();
  std::uint32_t id = 0;
  EXPECT_EQ(client.read_region(kConfigRegion, 0, std::as_writable_bytes(std::span(&id, 1))), 0);
  EXPECT_EQ(id, 0x10ee1af4u);
  const std::uint16_t enable = 0x0006;
  EXPECT_EQ(client.write_region(kConfigRegion, 4, bytes_of(enable)), 0);
  EXPECT_TRUE(function_.config().bus_master_enabled());
}

TEST_F(MessagesTest, LargeAccessesAreSplitForTheFunction) {
  auto client = negotiated();
  std::vector<std::byte> data(1024), back(1024);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(client.write_region(0, 0, data), 0);
  EXPECT_EQ(client.read_region(0, 0, back), 0);
  EXPECT_EQ(back, data);
}

TEST_F(MessagesTest, NoReplyIsSentToACommandThatAsksForNone) {
  auto client = negotiated();
  const std::uint32_t value = 0xabcd;
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_TRUE(client.post_region(0, i * 4, bytes_of(value)));
  // The next reply is the read's, so no write got a reply, and the writes were done first.
  std::uint32_t back = 0;
  EXPECT_EQ(client.read_region(0, 36, std::as_writable_bytes(std::span(&back, 1))), 0);
  EXPECT_EQ(back, value);
}

TEST_F(MessagesTest, RegionWriteMultiDoesAllItsWrites) {
  auto client = negotiated();
  struct {
    std::uint64_t count = 2;
    RegionWriteOne writes[2] = {{.offset = 0, .region = 0, .count = 8, .data = {}},
                                {.offset = 8, .region = 0, .count = 2, .data = {}}};
  } request;
  std::memset(request.writes[0].data, 0x11, 8);
  std::memset(request.writes[1].data, 0x22, 8);
  EXPECT_EQ(structure<std::uint64_t>(client.call(Command::kRegionWriteMulti, request)), 2u);
  EXPECT_EQ(function_.memory[7], std::byte{0x11});
  EXPECT_EQ(function_.memory[9], std::byte{0x22});
  EXPECT_EQ(function_.memory[10], std::byte{0});
}

TEST_F(MessagesTest, DeviceResetResetsTheFunctionAndKeepsMemory) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  EXPECT_EQ(client.map_dma(0, 4096, file.get(), 0), 0);
  const auto before = function_.resets;
  EXPECT_EQ(client.reset(), 0);
  EXPECT_EQ(function_.resets, before + 1);
  EXPECT_EQ(function_.dma().mappings().size(), 1u);
}

TEST_F(MessagesTest, DmaMapWithADescriptorGivesLocalMemoryAtItsOffset) {
  auto client = negotiated();
  const auto file = memory_file(3 * 4096);
  const char text[] = "here";
  ASSERT_EQ(::pwrite(file.get(), text, sizeof text, 8192), static_cast<ssize_t>(sizeof text));
  EXPECT_EQ(client.map_dma(0x100000, 4096, file.get(), 8192), 0);
  const auto* at = function_.dma().translate(0x100000, 4096, pcie::DmaAccess::kReadWrite);
  ASSERT_NE(at, nullptr);
  EXPECT_STREQ(reinterpret_cast<const char*>(at), text);
}

TEST_F(MessagesTest, OneFileMayBeMappedManyTimes) {
  auto client = negotiated();
  const auto file = memory_file(4 * 4096);
  EXPECT_EQ(client.map_dma(0, 8192, file.get(), 0), 0);
  EXPECT_EQ(client.map_dma(0x10000, 8192, file.get(), 0), 0);
  EXPECT_EQ(client.map_dma(0x20000, 4096, file.get(), 4096, kDmaMapReadable), 0);
  *function_.dma().translate(4096, 1, pcie::DmaAccess::kWrite) = std::byte{0x5a};
  EXPECT_EQ(*function_.dma().translate(0x11000, 1, pcie::DmaAccess::kRead), std::byte{0x5a});
  EXPECT_EQ(*function_.dma().translate(0x20000, 1, pcie::DmaAccess::kRead), std::byte{0x5a});
  EXPECT_EQ(function_.dma().translate(0x20000, 1, pcie::DmaAccess::kWrite), nullptr);
}

TEST_F(MessagesTest, DmaUnmapAnswersWithTheEntryAndRemovesIt) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  ASSERT_EQ(client.map_dma(0, 4096, file.get(), 0), 0);
  const DmaUnmap request{.argsz = sizeof request, .flags = 0, .address = 0, .size = 4096};
  const auto entry = structure<DmaUnmap>(client.call(Command::kDmaUnmap, request));
  EXPECT_EQ(entry.size, 4096u);
  EXPECT_TRUE(function_.dma().mappings().empty());
}

TEST_F(MessagesTest, DmaUnmapOfAWiderRangeRemovesEveryMapInIt) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  for (const std::uint64_t at : {0x1000, 0x10000, 0x20000, 0x50000}) {
    ASSERT_EQ(client.map_dma(at, 4096, file.get(), 0), 0);
  }
  EXPECT_EQ(client.unmap_dma(0x8000, 0x20000), 0);
  ASSERT_EQ(function_.dma().mappings().size(), 2u);
  EXPECT_EQ(function_.dma().mappings()[1].iova, 0x50000u);
}

TEST_F(MessagesTest, DmaUnmapAllRemovesEverything) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  ASSERT_EQ(client.map_dma(0, 4096, file.get(), 0), 0);
  ASSERT_EQ(client.map_dma(0x10000, 4096, file.get(), 0), 0);
  const DmaUnmap request{.argsz = sizeof request, .flags = kDmaUnmapAll, .address = 0, .size = 0};
  structure<DmaUnmap>(client.call(Command::kDmaUnmap, request));
  EXPECT_TRUE(function_.dma().mappings().empty());
}

TEST_F(MessagesTest, ABurstOfMapsAndUnmapsIsDoneInOrder) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  // As QEMU rearranges memory: without waiting for replies, and with a descriptor for every map.
  const auto message = [](Command command, const auto& payload, std::uint16_t id) {
    const Header header{.message_id = id,
                        .command = static_cast<std::uint16_t>(command),
                        .message_size = sizeof header + sizeof payload,
                        .flags = 0,
                        .error = 0};
    std::vector<std::byte> out(header.message_size);
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, &payload, sizeof payload);
    return out;
  };
  const int fd = file.get();
  for (std::uint16_t i = 0; i < 60; ++i) {
    const DmaMap map{.argsz = 32, .flags = 3, .offset = 0, .address = 0x1000, .size = 4096};
    const DmaUnmap unmap{.argsz = 24, .flags = 0, .address = 0x1000, .size = 4096};
    ASSERT_TRUE(client.send_raw(message(Command::kDmaMap, map, i), std::span(&fd, 1)));
    if (i == 59) break;
    ASSERT_TRUE(client.send_raw(message(Command::kDmaUnmap, unmap, i)));
  }
  for (int i = 0; i < 119; ++i) EXPECT_EQ(client.receive_reply()->error, 0u) << i;
  EXPECT_EQ(function_.dma().mappings().size(), 1u);
}

TEST_F(MessagesTest, AMessageThatTheBufferCutsKeepsItsDescriptor) {
  auto client = negotiated();
  const auto file = memory_file(4096);
  // The server reads 64 KiB at a time. Writes without replies leave room for half a map message.
  constexpr std::size_t kBuffer = 65536, kHeaders = sizeof(Header) + sizeof(RegionAccess);
  const std::vector<std::byte> page(4096);
  for (auto left = kBuffer - 24; left > 0;) {
    const auto size = std::min(left, page.size()) - kHeaders;
    ASSERT_TRUE(client.post_region(0, 0, std::span(page).first(size)));
    left -= size + kHeaders;
  }
  EXPECT_EQ(client.map_dma(0x1000, 4096, file.get(), 0), 0);
  ASSERT_EQ(function_.dma().mappings().size(), 1u);
  EXPECT_NE(function_.dma().mappings()[0].host, nullptr);
}

// --- interrupts ---

constexpr auto kSetEventfd = kIrqSetDataEventfd | kIrqSetActionTrigger;

class InterruptsTest : public MessagesTest {
 protected:
  int set_eventfds(vfio_user::Client& client, std::uint32_t start, std::vector<int> fds) {
    return client.set_irqs(kSetEventfd, kMsixIrqIndex, start,
                           static_cast<std::uint32_t>(fds.size()), {}, fds);
  }
  void enable_msix(vfio_user::Client& client) {
    const std::uint16_t control = 0x8000;
    EXPECT_EQ(client.write_region(kConfigRegion, pcie::ConfigSpace::kMsixAt + 2, bytes_of(control)),
              0);
  }
};

TEST_F(InterruptsTest, ADoorbellRaisesTheVectorsEventfdOnce) {
  auto client = negotiated();
  const auto first = event(), second = event();
  ASSERT_EQ(set_eventfds(client, 6, {first.get(), second.get()}), 0);
  const std::uint32_t vector = 7;
  EXPECT_EQ(client.write_region(0, TestFunction::kDoorbell, bytes_of(vector)), 0);
  settle();
  EXPECT_EQ(signals(first), 0u);
  EXPECT_EQ(signals(second), 1u);
}

TEST_F(InterruptsTest, TheReplyToADoorbellComesBeforeTheFunctionRuns) {
  auto client = negotiated();
  const auto runs = function_.runs;
  const std::uint32_t vector = 0;
  EXPECT_EQ(client.write_region(0, TestFunction::kDoorbell, bytes_of(vector)), 0);
  // The turn that brought the reply ran the function before it polled the socket.
  EXPECT_EQ(function_.doorbells.size(), 1u);
  settle();
  EXPECT_GT(function_.runs, runs);
  EXPECT_TRUE(function_.doorbells.empty());
}

TEST_F(InterruptsTest, VectorsComeInChunks) {
  auto client = negotiated();
  std::vector<os::UniqueFd> events;
  for (int i = 0; i < 40; ++i) events.push_back(event());
  for (std::uint32_t start = 0; start < 40; start += 16) {
    std::vector<int> chunk;
    for (auto i = start; i < std::min(start + 16, 40u); ++i) chunk.push_back(events[i].get());
    ASSERT_EQ(set_eventfds(client, start, chunk), 0);
  }
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 40), 0);
  for (const auto& fd : events) EXPECT_EQ(signals(fd), 1u);
}

TEST_F(InterruptsTest, BooleansSayWhichVectorsAreTriggered) {
  auto client = negotiated();
  const auto a = event(), b = event(), c = event();
  ASSERT_EQ(set_eventfds(client, 0, {a.get(), b.get(), c.get()}), 0);
  const std::array which{std::byte{1}, std::byte{0}, std::byte{1}};
  EXPECT_EQ(client.set_irqs(kIrqSetDataBool | kIrqSetActionTrigger, kMsixIrqIndex, 0, 3, which), 0);
  EXPECT_EQ(signals(a), 1u);
  EXPECT_EQ(signals(b), 0u);
  EXPECT_EQ(signals(c), 1u);
}

TEST_F(InterruptsTest, AMaskedVectorIsPendingUntilItIsUnmasked) {
  auto client = negotiated();
  enable_msix(client);
  const auto fd = event();
  ASSERT_EQ(set_eventfds(client, 3, {fd.get()}), 0);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionMask, kMsixIrqIndex, 3, 1), 0);
  function_.msix().raise(3);
  EXPECT_EQ(signals(fd), 0u);
  std::uint64_t pba = 0;
  EXPECT_EQ(
      client.read_region(0, TestFunction::kPbaOffset, std::as_writable_bytes(std::span(&pba, 1))),
      0);
  EXPECT_EQ(pba, 1u << 3);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionUnmask, kMsixIrqIndex, 3, 1), 0);
  EXPECT_EQ(signals(fd), 1u);
}

TEST_F(InterruptsTest, MsiHasEventfdsOfItsOwn) {
  auto client = negotiated();
  const auto msi = event(), msix = event();
  const std::array<int, 1> fds{msi.get()};
  ASSERT_EQ(client.set_irqs(kSetEventfd, kMsiIrqIndex, 5, 1, {}, fds), 0);
  ASSERT_EQ(set_eventfds(client, 5, {msix.get()}), 0);
  const std::uint16_t control = 1 | 3 << 4;  // enabled, 8 vectors
  ASSERT_EQ(client.write_region(kConfigRegion, pcie::ConfigSpace::kMsiAt + 2, bytes_of(control)),
            0);
  const std::uint32_t vector = 5;
  EXPECT_EQ(client.write_region(0, TestFunction::kDoorbell, bytes_of(vector)), 0);
  settle();
  EXPECT_EQ(signals(msi), 1u);
  EXPECT_EQ(signals(msix), 0u);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsiIrqIndex, 8, 1), EINVAL);
}

TEST_F(InterruptsTest, AnMsiBetweenEnablingAndItsEventfdIsNotLost) {
  // QEMU writes the guest's enable bit through before it sends the eventfds.
  auto client = negotiated();
  const std::uint16_t control = 1;
  ASSERT_EQ(client.write_region(kConfigRegion, pcie::ConfigSpace::kMsiAt + 2, bytes_of(control)),
            0);
  function_.interrupts().raise(0);
  const auto fd = event();
  const std::array<int, 1> fds{fd.get()};
  ASSERT_EQ(client.set_irqs(kSetEventfd, kMsiIrqIndex, 0, 1, {}, fds), 0);
  EXPECT_EQ(signals(fd), 1u);
}

TEST_F(InterruptsTest, NoDescriptorsDeassignVectorsAndNothingIsLostUntilTheyAreBack) {
  auto client = negotiated();
  enable_msix(client);
  const auto fd = event();
  ASSERT_EQ(set_eventfds(client, 3, {fd.get()}), 0);
  EXPECT_EQ(client.set_irqs(kSetEventfd, kMsixIrqIndex, 3, 1), 0);
  function_.msix().raise(3);
  EXPECT_EQ(signals(fd), 0u);
  ASSERT_EQ(set_eventfds(client, 3, {fd.get()}), 0);
  EXPECT_EQ(signals(fd), 1u);
}

TEST_F(InterruptsTest, CountZeroDisablesAllAndClosesTheDescriptors) {
  auto client = negotiated();
  const auto fd = event();
  const auto before = test::open_fds();
  ASSERT_EQ(set_eventfds(client, 0, {fd.get()}), 0);
  EXPECT_EQ(test::open_fds(), before + 1);
  for (std::uint32_t index = 0; index < kIrqIndexCount; ++index) {
    EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, index, 0, 0), 0);
  }
  EXPECT_EQ(test::open_fds_after(before), before);
  function_.msix().raise(0);
  EXPECT_EQ(signals(fd), 0u);
}

TEST_F(InterruptsTest, AFullEventfdDoesNotBlock) {
  auto client = negotiated();
  os::UniqueFd fd(::eventfd(0, EFD_CLOEXEC));  // blocking, as a careless client makes it
  const std::uint64_t full = 0xfffffffffffffffe;
  ASSERT_EQ(::write(fd.get(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
  ASSERT_EQ(set_eventfds(client, 0, {fd.get()}), 0);
  function_.msix().raise(0);
}

}  // namespace
}  // namespace softhca

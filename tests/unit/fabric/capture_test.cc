#include "fabric/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "fabric/switch.h"
#include "recorder.h"
#include "util/endian.h"

namespace softhca::fabric {
namespace {

constexpr std::uint64_t kA = 0x020000000001, kB = 0x020000000002;

class CaptureTest : public testing::Test {
 protected:
  ~CaptureTest() override { std::filesystem::remove(path_); }

  std::string file() const {
    std::ifstream in(path_, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::size_t count(std::string_view text) const {
    const auto all = file();
    std::size_t n = 0;
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++n;
    return n;
  }

  /// The number of the interface that the frame with this payload stands on.
  std::uint32_t interface_of(std::string_view payload) const {
    // Of an Enhanced Packet Block: interface, time stamp, two lengths; then the Ethernet header.
    constexpr std::size_t kBefore = 5 * 4 + 14;
    const auto all = file();
    const auto at = all.find(payload);
    if (at == std::string::npos || at < kBefore) return UINT32_MAX;
    return util::load_le32(reinterpret_cast<const std::byte*>(all.data() + at - kBefore));
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("capture_test." + std::to_string(getpid())))
          .string();
  std::uint64_t now_ = 1'700'000'000'000'000'000;
};

TEST_F(CaptureTest, SeesEachFrameOnceWhateverBecomesOfIt) {
  {
    Switch fabric;
    auto capture = Capture::create(path_, [&] { return ++now_; });
    ASSERT_TRUE(capture);
    auto a = fabric.create_port("port-a");
    fabric.set_tap(capture->get());
    auto b = fabric.create_port("port-b"), c = fabric.create_port("port-c");
    a->transmit(frame_of(0xffffffffffff, kA, "flooded frame"));
    b->transmit(frame_of(kA, kB, "forwarded frame"));
    b->transmit(frame_of(kB, kB, "filtered frame"));
    b->loop_back(frame_of(kB, kB, "looped frame"), 0);
    fabric.deliver(100);
    EXPECT_EQ((*capture)->frames(), 4u);
    fabric.set_tap(nullptr);
  }
  for (const auto* text :
       {"port-a", "port-b", "port-c", "flooded", "forwarded", "filtered", "looped"}) {
    EXPECT_EQ(count(text), 1u) << text;
  }
  EXPECT_EQ(interface_of("flooded"), 0u);
  for (const auto* text : {"forwarded", "filtered", "looped"}) {
    EXPECT_EQ(interface_of(text), 1u);
  }
}

// What goes to many goes to the wire and is looped back: two frames for the switch, one for people.
TEST_F(CaptureTest, SeesMulticastOnceThoughItIsLoopedBackToo) {
  {
    Switch fabric;
    auto capture = Capture::create(path_, [&] { return ++now_; });
    ASSERT_TRUE(capture);
    auto a = fabric.create_port("port-a");
    fabric.set_tap(capture->get());
    a->transmit(frame_of(0x01005e000001, kA, "multicast"));
    a->loop_back(frame_of(0x01005e000001, kA, "multicast"), 0);
    fabric.deliver(100);
    fabric.set_tap(nullptr);
  }
  EXPECT_EQ(count("multicast"), 1u);
}

TEST_F(CaptureTest, WritesOutRegularlyOnRequestAndAtTheEnd) {
  auto capture = Capture::create(path_, [&] { return now_; });
  ASSERT_TRUE(capture);
  (*capture)->handle_port(0, "p");
  (*capture)->handle_frame(0, frame_of(kA, kB, "first"));
  EXPECT_EQ(count("first"), 1u) << "the first is due at once";
  (*capture)->handle_frame(0, frame_of(kA, kB, "second"));
  EXPECT_EQ(count("second"), 0u);
  now_ += Capture::kFlushIntervalNs;
  (*capture)->handle_idle();
  EXPECT_EQ(count("second"), 1u);
  (*capture)->handle_frame(0, frame_of(kA, kB, "third"));
  (*capture)->flush();
  EXPECT_EQ(count("third"), 1u);
  (*capture)->handle_frame(0, frame_of(kA, kB, "fourth"));
  capture->reset();
  EXPECT_EQ(count("fourth"), 1u);
}

TEST_F(CaptureTest, IsForTheOwnerOfTheFileAlone) {
  using std::filesystem::perms;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Capture::create(path_, [&] { return ++now_; }));
    EXPECT_EQ(std::filesystem::status(path_).permissions(), perms::owner_read | perms::owner_write);
    std::filesystem::permissions(path_, perms::all);  // and one that was there before
  }
}

TEST_F(CaptureTest, SaysWhyAFileCannotBeCreated) {
  const auto capture = Capture::create("/nonexistent/x.pcapng", [] { return 0; });
  ASSERT_FALSE(capture);
  EXPECT_NE(capture.error().message.find("/nonexistent/x.pcapng"), std::string::npos);
}

}  // namespace
}  // namespace softhca::fabric

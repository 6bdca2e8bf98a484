#include "fabric/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "capture_file.h"
#include "eventually.h"
#include "fabric/switch.h"
#include "recorder.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CaptureTest : public testing::Test {
 protected:
  ~CaptureTest() override { std::filesystem::remove(path_); }

  void create() {
    auto made = Capture::create(path_, {}, [this] { return ++now_; });
    ASSERT_TRUE(made) << made.error().message;
    capture_ = *std::move(made);
  }
  /// "interface text" of each packet.
  std::vector<std::string> packets() const {
    std::vector<std::string> all;
    for (const auto& packet : packets_of(content_of(path_))) {
      all.push_back(packet.interface + " " + packet.text);
    }
    return all;
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("capture_test." + std::to_string(getpid())))
          .string();
  std::uint64_t now_ = 1'700'000'000'000'000'000;
  std::unique_ptr<Capture> capture_;
};

TEST_F(CaptureTest, SeesEachFrameOnceWhateverBecomesOfIt) {
  create();
  {
    Switch fabric;
    auto a = fabric.create_port("port-a");
    fabric.set_tap(&capture_->add_tap());
    auto b = fabric.create_port("port-b"), c = fabric.create_port("port-c");
    a->transmit(frame_of(0xffffffffffff, kA, "flooded"));
    b->transmit(frame_of(kA, kB, "forwarded"));
    b->transmit(frame_of(kB, kB, "filtered"));
    b->loop_back(frame_of(kB, kB, "looped"), 0);
    fabric.deliver(100);
    EXPECT_EQ(capture_->frames(), 4u);
    fabric.set_tap(nullptr);
  }
  capture_.reset();
  EXPECT_THAT(packets(), ElementsAre("port-a flooded", "port-b forwarded", "port-b filtered",
                                     "port-b looped"));
  EXPECT_THAT(content_of(path_), HasSubstr("port-c")) << "an interface without frames";
}

// A multicast frame is transmitted and looped back: two frames for the switch, one for the capture.
TEST_F(CaptureTest, SeesMulticastOnceThoughItIsLoopedBackToo) {
  create();
  {
    Switch fabric;
    auto a = fabric.create_port("port-a");
    fabric.set_tap(&capture_->add_tap());
    a->transmit(frame_of(0x01005e000001, kA, "multicast"));
    a->loop_back(frame_of(0x01005e000001, kA, "multicast"), 0);
    fabric.deliver(100);
    fabric.set_tap(nullptr);
  }
  capture_.reset();
  EXPECT_THAT(packets(), ElementsAre("port-a multicast"));
}

TEST_F(CaptureTest, PortsOfTwoSwitchesAreInterfacesOfTheirOwn) {
  create();
  {
    Switch one, other;
    one.set_tap(&capture_->add_tap());
    other.set_tap(&capture_->add_tap());
    auto a = one.create_port("port-a"), b = other.create_port("port-b");
    a->transmit(frame_of(kB, kA, "from a"));
    b->transmit(frame_of(kA, kB, "from b"));
    one.deliver(1);
    other.deliver(1);
    one.set_tap(nullptr);
    other.set_tap(nullptr);
  }
  capture_.reset();
  EXPECT_THAT(packets(), ElementsAre("port-a from a", "port-b from b"));
}

TEST_F(CaptureTest, IsInTheFileSoonWhateverComesNext) {
  create();
  auto& tap = capture_->add_tap();
  tap.handle_port(0, "p", wire::Link::kEthernet);
  for (const auto* text : {"first", "second"}) {
    tap.handle_frame(0, frame_of(kA, kB, text));
    EXPECT_TRUE(eventually([&] { return content_of(path_).find(text) != std::string::npos; }))
        << text;
  }
  tap.handle_frame(0, frame_of(kA, kB, "third"));
  capture_.reset();
  EXPECT_THAT(packets(), ElementsAre("p first", "p second", "p third"));
}

TEST_F(CaptureTest, IsForTheOwnerOfTheFileAlone) {
  using std::filesystem::perms;
  for (int i = 0; i < 2; ++i) {
    create();
    EXPECT_EQ(std::filesystem::status(path_).permissions(), perms::owner_read | perms::owner_write);
    std::filesystem::permissions(path_, perms::all);  // a file that was there before
  }
}

TEST_F(CaptureTest, AnotherUsersFileIsRefused) {
  constexpr uid_t kNobody = 65534;
  create();
  capture_.reset();
  if (::chown(path_.c_str(), kNobody, kNobody) != 0) GTEST_SKIP() << "not root";
  const auto capture = Capture::create(path_, {}, [] { return 0; });
  ASSERT_FALSE(capture);
  EXPECT_THAT(capture.error().message, HasSubstr("is another user's file"));
}

TEST_F(CaptureTest, ALinkToAFileIsRefusedAndOneToADeviceIsNot) {
  const auto target = path_ + ".target";
  std::ofstream(target) << "mine";
  std::filesystem::create_symlink(target, path_);
  const auto capture = Capture::create(path_, {}, [] { return 0; });
  ASSERT_FALSE(capture);
  EXPECT_THAT(capture.error().message, HasSubstr("is a symbolic link"));
  EXPECT_EQ(std::filesystem::file_size(target), 4u);
  std::filesystem::remove(target);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/null", path_);
  create();
}

TEST_F(CaptureTest, SaysWhyAFileCannotBeCreated) {
  const auto capture = Capture::create("/nonexistent/x.pcapng", {}, [] { return 0; });
  ASSERT_FALSE(capture);
  EXPECT_NE(capture.error().message.find("/nonexistent/x.pcapng"), std::string::npos);
}

}  // namespace
}  // namespace softhca::fabric

// A device's link under the rules of a run.
#include "door/card/link_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "door/memory/fault_guard.h"
#include "fabric/recorder.h"
#include "util/log.h"

namespace softhca::door {
namespace {

using testing::HasSubstr;

class DoorLinkFaults : public testing::Test {
 protected:
  DoorLinkFaults() {
    catch_faults();
    EXPECT_NE(::mkdtemp(directory_.data()), nullptr);
    book_.emplace(fabric::FaultBook::create(directory_ + "/rules", {"mlx5_0"}).value());
    util::set_log_sink([this](auto, auto text) { lines_ += text; });
  }
  ~DoorLinkFaults() override {
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }
  /// A turn in which the device sends a frame. Returns the faults on memory that it has met.
  std::size_t turn(LinkFaults& faults) {
    {
      const FaultGuard guard;
      faults.pass_time(util::Time{});
      faults.port().transmit(fabric::frame_of(fabric::kB, fabric::kA, "x"));
    }
    const auto count = noted_faults().size();
    release_faults();
    return count;
  }

  std::string directory_ = "/tmp/softhca-faults-XXXXXX";
  std::optional<fabric::FaultBook> book_;
  std::string lines_;
};

/// The bytes that are left of the file.
class DoorCutRules : public DoorLinkFaults, public testing::WithParamInterface<off_t> {};
// All of the file goes, or only the end, where slots are that no rule has.
INSTANTIATE_TEST_SUITE_P(Sizes, DoorCutRules, testing::Values(0, 4096));

// A turn with a fault counts as not done.
TEST_P(DoorCutRules, AFileOfRulesThatIsCutSpoilsOneTurn) {
  ASSERT_TRUE(book_->add("port=mlx5_0,do=lose"));
  fabric::RecordingPort below;
  const auto faults = LinkFaults::create(
      below, {.name = "mlx5_0", .rules = book_->path(), .clock = [] { return util::Time{}; }});
  EXPECT_EQ(turn(*faults), 0u);
  EXPECT_EQ(below.texts.size(), 0u) << "the rule acts";
  ASSERT_EQ(::truncate(book_->path().c_str(), GetParam()), 0);
  EXPECT_GT(turn(*faults), 0u);
  EXPECT_THAT(lines_, HasSubstr("no longer act here"));
  below.texts.clear();
  lines_.clear();
  for (int i = 0; i != 3; ++i) EXPECT_EQ(turn(*faults), 0u);
  EXPECT_EQ(below.texts.size(), 3u) << "there is no rule any more";
  EXPECT_EQ(lines_, "") << "it was said once";
}

TEST_F(DoorLinkFaults, ALinkSaysHowManyFramesGoOutWithOne) {
  fabric::RecordingPort below;
  const auto faults = LinkFaults::create(
      below, {.name = "mlx5_0", .rules = book_->path(), .clock = [] { return util::Time{}; }});
  const auto with = [&](const char* rule) {
    book_->clear();
    EXPECT_TRUE(book_->add(rule));
    faults->pass_time(util::Time{});
    return faults->frames_per_packet();
  };
  EXPECT_EQ(faults->frames_per_packet(), 1u);
  EXPECT_EQ(with("port=*,do=lose"), 1u);
  EXPECT_EQ(with("port=*,do=corrupt,part=icrc"), 1u);
  for (const auto* const rule :
       {"port=*,do=duplicate", "port=*,do=reorder", "port=*,do=delay,time=1s",
        "port=*,do=limit,rate=1mbit", "port=*,do=pause,time=1s"}) {
    EXPECT_EQ(with(rule), fabric::FaultyLink::kFramesPerPacket) << rule;
  }
}

}  // namespace
}  // namespace softhca::door

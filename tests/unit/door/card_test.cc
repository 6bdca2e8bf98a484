// A device of a process, on a hub that may not run.
#include "door/card.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>

#include "hub/hub.h"
#include "util/event_loop.h"
#include "util/shared_ring.h"
#include "uverbs/device_counters.h"

namespace softhca::door {
namespace {

class CardTest : public testing::Test {
 protected:
  CardTest() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
    loop_ = *util::EventLoop::create();
    hub::Hub::Options options;
    options.ring_capacity = util::SharedRing::kCapacityMin;
    hub_ = *hub::Hub::create(*loop_, directory_ + "/hub", options);
  }
  ~CardTest() override {
    hub_.reset();
    std::filesystem::remove_all(directory_);
  }

  /// In a thread: it waits for the hub's answer.
  std::unique_ptr<Card> make(util::TimeSource clock) {
    std::unique_ptr<Card> card;
    std::atomic<bool> done = false;
    std::thread makes([&] {
      auto made = Card::create({.directory = directory_,
                                .find_mac = [](const auto&, auto&) { return false; },
                                .want_mac = [](const auto&) { return false; },
                                .clock = std::move(clock)});
      if (made) card = *std::move(made);
      done = true;
    });
    while (!done) loop_->run_once(util::Time::min());
    makes.join();
    return card;
  }

  std::string directory_;
  std::unique_ptr<util::EventLoop> loop_;
  std::unique_ptr<hub::Hub> hub_;
};

// A ring of the smallest size has room for a device's packets only while it is empty.
TEST_F(CardTest, CommandsDoNotWaitForARingThatNobodyDrains) {
  const auto card = make([] { return util::Time{std::chrono::hours(1)}; });
  ASSERT_NE(card, nullptr);
  card->ask(driver::Gid::from_ipv4(10, 99, 99, 99));
  card->progress();
  EXPECT_FALSE(card->is_quiet(util::monotonic_now())) << "it waits for room";
  EXPECT_TRUE(uverbs::read_counters(card->device()));
}

}  // namespace
}  // namespace softhca::door

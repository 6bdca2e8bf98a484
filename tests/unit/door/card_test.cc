// A device of a process, on a hub that runs only while the device joins it.
#include "door/card/card.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "door/card/host_addresses.h"
#include "fabric/shared_faults.h"
#include "hub/hub.h"
#include "os/event_loop.h"
#include "os/shared_ring.h"
#include "spec/connectx/mkey.h"
#include "uverbs/device_command.h"
#include "uverbs/device_counters.h"

namespace softhca::door {
namespace {

/// Creates a key for one page, as reg_mr does. 0: the device refuses it.
std::uint32_t create_key(uverbs::Device& device) {
  namespace spec = softhca::spec::connectx;
  using In = spec::create_mkey_in;
  using Mkc = spec::mkey_context;
  constexpr std::uint64_t kPage = 4096;
  constexpr std::size_t kList = 16;  // one octword
  uverbs::Command<In> in(spec::command_opcode::CREATE_MKEY, kList);
  in.set(In::translations_octword_actual_size, 1);
  const auto context = in.sub(In::mkey_context);
  context.set(Mkc::access_mode, static_cast<std::uint32_t>(spec::mkey_access_mode::MTT));
  context.set(Mkc::lr, 1);
  context.set(Mkc::umr_en, 1);
  context.set(Mkc::pd, device.own_pd());
  context.set(Mkc::qpn, 0xffffff);
  context.set(Mkc::len, kPage);
  context.set(Mkc::translations_octword_size, 1);
  context.set(Mkc::log_page_size, 12);
  const auto list = in.all().subspan(In::klm_pas_mtt_offset);
  util::MutableView<spec::mtt_entry>(list.first(spec::mtt_entry::kSize))
      .set(spec::mtt_entry::ptag, uverbs::Device::bus_address(kPage) >> spec::mtt_entry::ptag.kLo);
  const auto out = device.commands().execute<spec::create_mkey_out>(in);
  return out ? out->get(spec::create_mkey_out::mkey_index) << 8 : 0;
}

class CardTest : public testing::Test {
 protected:
  CardTest() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
    loop_ = *os::EventLoop::create();
    hub::Hub::Options options;
    options.ring_capacity = os::SharedRing::kCapacityMin;
    hub_ = *hub::Hub::create(*loop_, directory_ + "/hub", options);
  }
  ~CardTest() override {
    hub_.reset();
    std::filesystem::remove_all(directory_);
  }

  /// Creates the card in a thread, since it waits for the hub's answer.
  std::unique_ptr<Card> make(util::TimeSource clock,
                             std::function<unsigned(unsigned)> read_mtu = mtu_of) {
    std::unique_ptr<Card> card;
    std::atomic<bool> done = false;
    std::thread makes([&] {
      auto made = Card::create({.directory = directory_,
                                .faults = rules_,
                                .find_mac = [](const auto&, auto&) { return false; },
                                .want_mac = [](const auto&) { return false; },
                                .clock = std::move(clock),
                                .read_mtu = std::move(read_mtu)});
      if (made) card = *std::move(made);
      done = true;
    });
    while (!done) loop_->run_once(util::Time::min());
    makes.join();
    return card;
  }

  /// Lets the hub take what the card has sent. Returns the number of frames since the last call.
  std::uint64_t taken_by_hub(Card& card) {
    card.settle();
    for (int i = 0; i != 8; ++i) loop_->run_once(util::Time::min());
    return hub_->counters().frames - std::exchange(taken_, hub_->counters().frames);
  }

  std::string directory_;
  std::string rules_;  ///< file of network rules; empty: none
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<hub::Hub> hub_;
  std::uint64_t taken_ = 0;
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

// A rule holds a frame until there is no room for it.
TEST_F(CardTest, AFrameThatARuleHasHeldWaitsForRoomInTheRing) {
  auto book = fabric::FaultBook::create(directory_ + "/rules", {"mlx5_0"}).value();
  rules_ = book.path();
  // Time stands still for the rules and for waiting, so that no wait is too long.
  const auto then = util::monotonic_now();
  const auto card = make([then] { return then; });
  ASSERT_NE(card, nullptr);
  card->progress();
  (void)taken_by_hub(*card);
  card->ask(driver::Gid::from_ipv4(10, 99, 99, 98));
  ASSERT_TRUE(book.add("port=mlx5_0,do=delay,time=1us"));
  card->progress();
  card->ask(driver::Gid::from_ipv4(10, 99, 99, 99));
  card->progress();
  EXPECT_EQ(taken_by_hub(*card), 1u) << "the second found a frame in the ring";
  card->progress();
  EXPECT_EQ(taken_by_hub(*card), 1u);
}

// ibv_rereg_mr() changes rights by a work request of the driver's own, which sends nothing.
TEST_F(CardTest, AKeyChangesInPlaceWhileNobodyDrainsTheRing) {
  const auto card = make([] { return util::Time{std::chrono::hours(1)}; });
  ASSERT_NE(card, nullptr);
  auto& device = card->device();
  const auto key = create_key(device);
  ASSERT_NE(key, 0u);
  card->ask(driver::Gid::from_ipv4(10, 99, 99, 99));
  card->progress();
  ASSERT_FALSE(card->is_quiet(util::monotonic_now())) << "it waits for room";
  EXPECT_TRUE(device.change_key({.key = key, .pd = device.own_pd(), .local_write = true}));
  EXPECT_TRUE(device.change_key({.key = key, .pd = device.own_pd(), .remote_read = true}));
}

// The thread calls follow_host() once a second, and when the kernel reports a change.
TEST_F(CardTest, TheMtuOfTheInterfaceIsReadWhenTheHostIsFollowed) {
  unsigned mtu = 1500, reads = 0;
  const auto card = make(util::monotonic_now, [&](unsigned) {
    ++reads;
    return mtu;
  });
  ASSERT_NE(card, nullptr);
  for (int i = 0; i != 10; ++i) EXPECT_EQ(card->device().active_mtu(), 3) << "1024";
  EXPECT_EQ(reads, 1u);
  mtu = 9000;
  EXPECT_EQ(card->follow_host(), 0u);
  for (int i = 0; i != 10; ++i) EXPECT_EQ(card->device().active_mtu(), 5) << "4096";
  EXPECT_EQ(reads, 2u);
}

}  // namespace
}  // namespace softhca::door

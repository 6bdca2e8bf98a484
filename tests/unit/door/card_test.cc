// A device of a process, on a hub that runs only while the device joins it.
#include "door/card/card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "door/card/addresses.h"
#include "door/card/host_addresses.h"
#include "fabric/shared_faults.h"
#include "hub/block_file.h"
#include "hub/hub.h"
#include "hub/join.h"
#include "hub/roce_group.h"
#include "hub/roce_multicast.h"
#include "os/event_loop.h"
#include "os/own_network.h"
#include "os/shared_ring.h"
#include "spec/connectx/mkey.h"
#include "util/log.h"
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
                             std::function<unsigned(unsigned)> read_mtu = mtu_of,
                             const std::string& address = {}) {
    std::unique_ptr<Card> card;
    std::atomic<bool> done = false;
    std::thread makes([&] {
      auto made = Card::create({.directory = directory_,
                                .address = address,
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

/// A network with an interface "shared0", which has 192.0.2.1, and devices that share it.
class SharedCardTest : public CardTest {
 protected:
  SharedCardTest() {
    if (!network_.made()) return;
    os::OwnNetwork::run(
        "ip link add shared0 type veth peer name shared1 && ip link set shared0 up && "
        "ip addr add 192.0.2.1/24 dev shared0");
    hub::Hub::Options options;
    auto file = hub::BlockFile::create(directory_);
    EXPECT_TRUE(file);
    file_.emplace(*std::move(file));
    options.publish_block = [this](hub::RoceBlock block, unsigned number) {
      file_->set(block, number);
    };
    options.clock = [this] { return util::Time(hub_clock_.load()); };
    options.ring_capacity = os::SharedRing::kCapacityMin;
    hub_.reset();
    hub_ = *hub::Hub::create(*loop_, directory_ + "/hub", options);
  }
  ~SharedCardTest() override { hub_.reset(); }
  void SetUp() override {
    if (!network_.made()) GTEST_SKIP() << "no namespaces for users here";
  }
  std::unique_ptr<Card> make_shared() {
    return make([this] { return now_; }, mtu_of, "if:shared0");
  }
  std::unique_ptr<Card> make_other() {
    return make([this] { return now_; });
  }
  static driver::Mac station_of(const Card& card) {
    return mac_of(card.shared_routes().addresses()->sharing().station);
  }
  static std::uint32_t qpn_of(const Card& card) {
    return std::uint32_t{card.shared_routes().addresses()->sharing().block} << 16 | 0x123;
  }
  static unsigned sockets(const Card& card) {
    unsigned count = 0;
    card.machines().for_each_socket([&](int) { ++count; });
    return count;
  }
  /// Sockets of groups 239.9.9.0/24 in the network, by proc(5).
  static unsigned group_sockets() {
    std::ifstream file("/proc/thread-self/net/udp");
    unsigned count = 0;
    for (std::string line; std::getline(file, line);) {
      count += line.find("0909EF:12B7") != std::string::npos ? 1 : 0;  // port 4791
    }
    return count;
  }
  static driver::Mac mac_to(const Card& card, const driver::Gid& to) {
    driver::Mac mac;
    EXPECT_TRUE(card.find_mac(to, mac));
    return mac;
  }
  template <class... Cards>
  void turn(Cards&... cards) {
    for (int i = 0; i != 20; ++i) {
      loop_->run_once(util::Time::min());
      (cards.receive(), ...);
      (cards.progress(), ...);
      (cards.settle(), ...);
    }
  }

  static inline const driver::Gid kAddress = driver::Gid::from_ipv4(192, 0, 2, 1);
  static inline const driver::Gid kSecond = driver::Gid::from_ipv4(192, 0, 2, 2);
  /// Takes a block for a process that does nothing else.
  void take_block() {
    std::atomic<bool> done = false;
    std::thread takes([&] {
      auto joined = hub::join(directory_ + "/hub");
      if (joined && hub::share(*joined)) others_.push_back(*std::move(joined));
      done = true;
    });
    while (!done) loop_->run_once(util::Time::min());
    takes.join();
  }

  util::Time now_{std::chrono::hours(1)};
  std::atomic<util::Duration> hub_clock_ = util::Duration(std::chrono::hours(1));
  std::vector<hub::Joined> others_;
  os::OwnNetwork network_;
  std::optional<hub::BlockFile> file_;
};

TEST_F(SharedCardTest, DevicesOfOneAddressHaveSocketsAndBlocks) {
  const auto a = make_shared(), b = make_shared();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->shared_routes().addresses()->sharing().block, 1);
  EXPECT_EQ(b->shared_routes().addresses()->sharing().block, 2);
  EXPECT_TRUE(a->has_address(kAddress));
  EXPECT_TRUE(b->has_address(kAddress));
  EXPECT_EQ(sockets(*a), 1u);
  EXPECT_EQ(sockets(*b), 1u);
  EXPECT_EQ(a->model().options().queue_numbers,
            (connectx::QueueNumbers{.first = 0x10000, .count = 0x10000}));
  EXPECT_EQ(b->model().options().queue_numbers,
            (connectx::QueueNumbers{.first = 0x20000, .count = 0x10000}));
}

// So that processes get links, and packets to the device itself do not leave it.
TEST_F(SharedCardTest, PacketsForAQpGoToItsDevice) {
  const auto a = make_shared(), b = make_shared(), c = make_other();
  ASSERT_TRUE(a && b && c);
  const auto station = station_of(*a);
  EXPECT_EQ(mac_to(*a, kAddress), station);
  const auto number_of_a = mac_of(hub::process_of_block(directory_, 1).value());
  const auto number_of_b = mac_of(hub::process_of_block(directory_, 2).value());
  for (auto* const card : {a.get(), b.get(), c.get()}) {
    const auto& mac_of_qp = card->device().options().mac_of_qp;
    EXPECT_EQ(mac_of_qp(station, qpn_of(*a)), number_of_a);
    EXPECT_EQ(mac_of_qp(station, qpn_of(*b)), number_of_b);
    EXPECT_EQ(mac_of_qp(station, 0x990001), station) << "a block of no process";
    EXPECT_EQ(mac_of_qp(number_of_b, qpn_of(*a)), number_of_b) << "not the station's";
  }
}

TEST_F(SharedCardTest, AnotherDeviceResolvesTheAddressToTheStation) {
  const auto a = make_shared(), b = make_shared(), c = make_other();
  ASSERT_TRUE(a && b && c);
  EXPECT_FALSE(c->shared_routes().is_shared(kAddress));
  c->ask(kAddress);
  turn(*a, *b, *c);
  EXPECT_EQ(mac_to(*c, kAddress), station_of(*a));
  EXPECT_TRUE(c->shared_routes().is_shared(kAddress));
  EXPECT_TRUE(a->shared_routes().is_shared(kAddress));
}

// Any of them may have asked.
TEST_F(SharedCardTest, EachDeviceOfTheAddressLearnsAnAnswer) {
  const auto a = make_shared(), b = make_shared(), c = make_other();
  ASSERT_TRUE(a && b && c);
  const auto gid_of_c = c->device().options().gids.back().gid;
  a->ask(gid_of_c);
  turn(*a, *b, *c);
  driver::Mac mac;
  EXPECT_TRUE(a->find_mac(gid_of_c, mac));
  EXPECT_TRUE(b->find_mac(gid_of_c, mac));
}

TEST_F(SharedCardTest, AddressesMayComeWhileTheDeviceRuns) {
  const auto a = make_shared();
  ASSERT_TRUE(a);
  os::OwnNetwork::run("ip addr add 192.0.2.2/24 dev shared0");
  EXPECT_EQ(a->follow_host(), 2u) << "RoCE v1 and v2";
  turn(*a);
  EXPECT_EQ(sockets(*a), 2u);
  os::OwnNetwork::run("ip addr del 192.0.2.2/24 dev shared0");
  EXPECT_EQ(a->follow_host(), 2u);
  turn(*a);
  EXPECT_EQ(sockets(*a), 1u);
  os::OwnNetwork::run("ip addr add 192.0.2.2/24 dev shared0");
  (void)a->follow_host();
  turn(*a);
  EXPECT_EQ(sockets(*a), 2u);
}

// A QP leaves its group in a destructor, which must not open a socket for another group.
TEST_F(SharedCardTest, AGroupThatWaitsForRoomGetsItWhenTheHostIsFollowed) {
  const auto card = make_shared();
  ASSERT_TRUE(card);
  const auto& on_member = card->device().options().on_member;
  const auto group = [](unsigned i) {
    return driver::Gid::from_ipv4(239, 9, 9, static_cast<std::uint8_t>(i));
  };
  constexpr unsigned kMost = hub::RoceMulticast::kGroupsMax;
  for (unsigned i = 0; i != kMost + 1; ++i) on_member(group(i), true);
  on_member(group(0), true);
  EXPECT_EQ(group_sockets(), kMost);
  on_member(group(0), false);
  EXPECT_EQ(group_sockets(), kMost) << "another QP is in it";
  on_member(group(0), false);
  EXPECT_EQ(group_sockets(), kMost - 1);
  (void)card->follow_host();
  EXPECT_EQ(group_sockets(), kMost);
  for (unsigned i = 1; i != kMost + 1; ++i) on_member(group(i), false);
  EXPECT_EQ(group_sockets(), 0u);
}

TEST_F(SharedCardTest, AnAddressWhosePortIsTakenGetsItsSocketLater) {
  std::vector<std::string> lines;
  util::set_log_sink([&](auto, auto text) { lines.emplace_back(text); });
  hub::RoceRefusal refusal;
  auto other = hub::RoceGroup::open(kAddress, 4791, refusal);
  ASSERT_TRUE(other);
  const auto a = make_shared();
  ASSERT_TRUE(a);
  EXPECT_EQ(sockets(*a), 0u);
  EXPECT_TRUE(a->has_address(kAddress)) << "on the hub";
  EXPECT_THAT(lines, testing::Contains(testing::HasSubstr(
                         "UDP port 4791 of 192.0.2.1 is taken by another process of yours")));
  other.reset();
  now_ += hub::SharedAddresses::kLongestPause;
  hub_clock_ = hub_clock_.load() + hub::RoceHost::kRefusedFor;
  (void)a->follow_host();
  turn(*a);
  EXPECT_EQ(sockets(*a), 1u);
  util::set_log_sink(nullptr);
}

// So that a device of another network of the machine does not seem to have them.
TEST_F(SharedCardTest, WithoutABlockADeviceHasNoneOfTheAddresses) {
  util::set_log_sink([](auto, auto) {});
  for (int i = 0; i != 255; ++i) take_block();
  const auto a = make_shared();
  util::set_log_sink(nullptr);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->shared_routes().addresses(), nullptr);
  EXPECT_FALSE(a->has_address(kAddress));
  EXPECT_EQ(sockets(*a), 0u);
}

}  // namespace
}  // namespace softhca::door

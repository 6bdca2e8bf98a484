// Processes that come to exchange frames without their hub (hub/link_note.h).
#include "hub/uplink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/fd_message.h"
#include "hub/hub.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

/// Bytes that a device may send in one turn.
constexpr std::size_t kTurn = 1 << 20;
/// More frames than a link needs to be set up.
constexpr int kMany = 100;

/// A process: its switch connects a station and the hub.
class Process {
 public:
  Process(Joined joined, util::TimeSource clock)
      : mac_(wire::MacAddress::from(std::as_bytes(std::span(joined.mac))).to_u64()),
        station_(fabric_.create_port("station")),
        link_(fabric_.create_port("hub"), std::move(joined), std::move(clock)) {
    station_->set_receiver(&receiver_);
    receiver_.then = [this](const wire::Frame& frame) {
      if (const auto packet = wire::IbPacket::parse(frame)) packets_.push_back(*packet);
    };
  }
  std::uint64_t mac() const { return mac_; }
  Uplink& link() { return link_; }

  void send(std::uint64_t to, std::string_view text) { send(fabric::frame_of(to, mac_, text)); }
  void send(const wire::Frame& frame) {
    station_->transmit(frame);
    turn();
  }
  /// Sends without receiving.
  void push(std::uint64_t to, std::string_view text) { push(fabric::frame_of(to, mac_, text)); }
  void push(const wire::Frame& frame) {
    station_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
    link_.settle();
  }
  void turn() {
    link_.receive(fabric::kAllFrames);
    fabric_.deliver(fabric::kAllFrames);
    link_.settle();
  }
  /// The InfiniBand packets that have arrived, with whichever CRC their link needs.
  std::vector<wire::IbPacket> take_packets() {
    turn();
    return std::exchange(packets_, {});
  }
  std::vector<std::string> take() {
    turn();
    return std::exchange(receiver_.texts, {});
  }
  bool is_woken() const {
    pollfd bell{.fd = link_.wake(), .events = POLLIN, .revents = 0};
    return ::poll(&bell, 1, 0) == 1;
  }

 private:
  const std::uint64_t mac_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> station_;
  fabric::Recorder receiver_;
  std::vector<wire::IbPacket> packets_;
  Uplink link_;
};

class UplinkTest : public testing::Test {
 protected:
  UplinkTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    start({});
  }
  ~UplinkTest() override {
    a_.reset();
    b_.reset();
    hub_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(Hub::Options options) {
    a_.reset();
    b_.reset();
    hub_.reset();
    loop_ = *util::EventLoop::create();
    options.clock = clock_;
    hub_ = *Hub::create(*loop_, path(), options);
    a_ = join_hub();
    b_ = join_hub();
    run_all();
  }
  std::string path() const { return directory_ / "hub"; }
  std::unique_ptr<Process> join_hub() {
    std::optional<util::Result<Joined>> joined;
    std::atomic<bool> done = false;
    std::thread joins([&] {
      joined.emplace(join(path()));
      done = true;
    });
    while (!done) run_hub();
    joins.join();
    return std::make_unique<Process>(*std::move(*joined), clock_);
  }
  void run_hub() {
    for (int i = 0; i < 20; ++i) loop_->run_once(util::Time::min());
  }
  void run_all() {
    for (int i = 0; i < 5; ++i) {
      run_hub();
      if (a_ != nullptr) a_->turn();
      if (b_ != nullptr) b_->turn();
    }
  }
  void make_link() {
    for (int i = 0; i < kMany; ++i) a_->send(b_->mac(), "hello");
    run_all();
    (void)b_->take();
    ASSERT_EQ(a_->link().links(), 1u);
    ASSERT_EQ(b_->link().links(), 1u);
  }

  /// A clock reading takes a microsecond. Nothing else takes time.
  util::Time now_{1h};
  const util::TimeSource clock_ = [this] { return now_ += 1us; };
  std::filesystem::path directory_;
  std::unique_ptr<util::EventLoop> loop_;
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<Process> a_, b_;
};

TEST_F(UplinkTest, TwoThatHaveMuchToSayDoSoWithoutTheHub) {
  make_link();
  EXPECT_EQ(hub_->counters().links, 1u);
  // The hub does not run.
  a_->send(b_->mac(), "question");
  EXPECT_THAT(b_->take(), ElementsAre("question"));
  b_->send(a_->mac(), "answer");
  EXPECT_THAT(a_->take(), ElementsAre("answer"));
}

/// A train of RDMA WRITE MIDDLE packets, from PSN `first`.
wire::Frame train_of(std::uint64_t to, std::uint64_t from, std::uint32_t first, unsigned packets,
                     std::span<const std::byte> payload) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(from);
  address.destination_mac = wire::MacAddress::from_u64(to);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  wire::Bth bth;
  bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
  bth.psn = wire::Psn(first);
  wire::Frame frame;
  const auto size = payload.size() / packets;
  wire::IbHeader(address).emit(bth, {}, size, frame);
  EXPECT_TRUE(frame.add_segment(payload));
  frame.set_train(
      {static_cast<std::uint16_t>(packets), static_cast<std::uint16_t>(size), 0, false});
  return frame;
}

TEST_F(UplinkTest, ATrainArrivesWithAndWithoutALink) {
  const std::vector<std::byte> payload(std::size_t{40} * 4096, std::byte{0x5a});
  std::uint32_t psn = 0;
  const auto send_and_look = [&] {
    a_->send(train_of(b_->mac(), a_->mac(), psn, 40, payload));
    run_all();
    std::vector<std::uint32_t> psns;
    for (const auto& packet : b_->take_packets()) psns.push_back(packet.bth.psn.value());
    std::vector<std::uint32_t> expected(40);
    std::iota(expected.begin(), expected.end(), psn);
    EXPECT_EQ(psns, expected);
    psn += 40;
  };
  send_and_look();
  make_link();
  (void)b_->take_packets();
  send_and_look();
}

TEST_F(UplinkTest, TwoThatHaveLittleToSayDoNot) {
  a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_THAT(b_->take(), ElementsAre("hello"));
  EXPECT_EQ(a_->link().links(), 0u);
  EXPECT_EQ(hub_->counters().links, 0u);
}

TEST_F(UplinkTest, FramesStayInOrderWhileALinkIsMade) {
  // All processes run now and then, interleaved at different rates.
  for (int phase = 0; phase < 60; ++phase) {
    start({});
    std::vector<std::string> heard, all;
    const auto hear = [&] {
      for (auto& text : b_->take()) heard.push_back(std::move(text));
    };
    for (int round = 0; round < 120; ++round) {
      all.push_back(std::to_string(round));
      a_->push(b_->mac(), all.back());
      if ((round + phase) % 4 == 0) loop_->run_once(util::Time::min());
      if ((round + phase) % 7 == 0) a_->turn();
      if ((round + phase) % 3 == 0) hear();
      if ((round + phase) % 5 == 0) hear();
    }
    run_all();
    hear();
    ASSERT_EQ(a_->link().links(), 1u) << phase;
    ASSERT_EQ(heard, all) << phase;
  }
}

TEST_F(UplinkTest, FramesStayInOrderWhereTheHubDoesNotGetToRun) {
  for (int i = 0; i < kMany; ++i) a_->push(b_->mac(), "hello");
  run_hub();
  a_->turn();
  b_->turn();
  run_hub();  // each process is notified that the other is ready
  (void)b_->take();
  // From here, the hub does not run.
  a_->push(b_->mac(), "first");
  a_->turn();
  a_->push(b_->mac(), "second");
  now_ += Patience::kLongest;  // the longest wait for a note
  auto heard = b_->take();
  run_all();
  for (auto& text : b_->take()) heard.push_back(std::move(text));
  EXPECT_THAT(heard, ElementsAre("first", "second"));
  EXPECT_EQ(a_->link().links(), 1u);
}

TEST_F(UplinkTest, ASleepingEndIsWokenByTheOther) {
  make_link();
  std::uint64_t count;
  (void)!::read(b_->link().wake(), &count, sizeof count);
  ASSERT_TRUE(b_->link().prepare_to_sleep());
  EXPECT_FALSE(b_->is_woken());
  a_->send(b_->mac(), "wake up");
  EXPECT_TRUE(b_->is_woken());
  EXPECT_THAT(b_->take(), ElementsAre("wake up"));
}

// Flow control: like a device, a checks the room before each turn.
TEST_F(UplinkTest, ASenderThatChecksTheRoomLosesNothing) {
  make_link();
  const std::string packet(4096, 'x');
  std::size_t sent = 0, arrived = 0;
  for (int turn = 0; turn < 20; ++turn) {
    while (const auto room = a_->link().room(kTurn)) {
      const auto packets = std::min(room, kTurn) / 4200;
      for (std::size_t i = 0; i < packets; ++i) a_->push(b_->mac(), packet);
      sent += packets;
      ASSERT_LE(sent - arrived, 512u) << "they do not fit";
    }
    arrived += b_->take().size();
    ASSERT_EQ(arrived, sent);
  }
  EXPECT_GE(sent, 20u * 200);
}

TEST_F(UplinkTest, AReceiverThatTakesNothingIsWaitedForBriefly) {
  make_link();
  const std::string packet(4096, 'x');
  while (a_->link().room(kTurn) != 0) a_->push(b_->mac(), packet);
  now_ += Patience::kLongest - 1ms;
  EXPECT_EQ(a_->link().room(kTurn), 0u);
  now_ += 1ms;
  EXPECT_NE(a_->link().room(kTurn), 0u) << "it stands still, and holds up all others";
  // Once b drains its ring again, a waits for it again.
  (void)b_->take();
  ASSERT_NE(a_->link().room(kTurn), 0u);
  while (a_->link().room(kTurn) != 0) a_->push(b_->mac(), packet);
}

TEST_F(UplinkTest, WhileALinkIsMadeNotTooMuchIsSentByTheHub) {
  const std::string packet(4096, 'x');
  const auto send_until_it_waits = [&](const Process& to) {
    std::size_t sent = 0;
    for (; (a_->link().room(kTurn) != 0) && sent < 1000; ++sent) a_->push(to.mac(), packet);
    return sent;
  };
  for (int i = 0; i < kMany; ++i) a_->push(b_->mac(), "hello");
  run_hub();
  a_->turn();  // the hub introduces b to a
  EXPECT_NE(a_->link().room(kTurn), 0u) << "a little is never too much";
  const auto sent = send_until_it_waits(*b_);
  EXPECT_LT(sent, 200u);
  run_hub();
  EXPECT_EQ(b_->take().size(), kMany + sent);
  run_hub();
  a_->turn();  // a learns that b is ready
  EXPECT_NE(a_->link().room(kTurn), 0u);
  EXPECT_EQ(a_->link().links(), 1u);
  // A process that never gets ready.
  const auto c = join_hub();
  c->turn();
  run_hub();
  for (int i = 0; i < kMany; ++i) a_->push(c->mac(), "hello");
  run_hub();
  a_->turn();
  EXPECT_LT(send_until_it_waits(*c), 200u);
  now_ += Patience::kLongest;
  EXPECT_NE(a_->link().room(kTurn), 0u);
}

TEST_F(UplinkTest, WhatOneHadSaidBeforeItWentArrives) {
  make_link();
  b_->send(a_->mac(), "last words");
  b_.reset();
  run_all();
  EXPECT_THAT(a_->take(), ElementsAre("last words"));
  run_all();
  EXPECT_EQ(a_->link().links(), 0u);
  a_->send(0x025FCB000002, "to nobody");
  run_all();
  // A new process gets its number, and receives its frames.
  b_ = join_hub();
  a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_THAT(b_->take(), Contains("hello"));
}

TEST_F(UplinkTest, ManyThatGoAtOnceAreNotALongTurn) {
  constexpr std::size_t kOthers = 8;
  std::vector<std::unique_ptr<Process>> others;
  for (std::size_t i = 0; i != kOthers; ++i) {
    others.push_back(join_hub());
    auto& other = *others.back();
    other.turn();
    run_all();
    for (int k = 0; k < kMany; ++k) a_->send(other.mac(), "hello");
    run_hub();
    other.turn();
    run_all();
    other.turn();
  }
  ASSERT_EQ(a_->link().links(), kOthers);
  (void)a_->take();
  for (const auto& other : others) other->push(a_->mac(), "last words");
  others.clear();
  run_hub();
  // However many frames a turn delivers, it takes over only one link.
  std::size_t turns = 0;
  for (; !a_->link().prepare_to_sleep() && turns < 100; ++turns) a_->turn();
  EXPECT_GE(turns, kOthers);
  EXPECT_LT(turns, 2 * kOthers);
  EXPECT_EQ(a_->take(), std::vector<std::string>(kOthers, "last words"));
  EXPECT_EQ(a_->link().links(), 0u);
}

// O_NONBLOCK is a property of the open file, and the peer shares the eventfd's open file.
TEST_F(UplinkTest, AFullBlockingEventfdDelaysNoOther) {
  make_link();
  const std::uint64_t full = ~std::uint64_t{0} - 1;
  std::uint64_t count;
  (void)!::read(b_->link().wake(), &count, sizeof count);
  ASSERT_TRUE(b_->link().prepare_to_sleep());
  ASSERT_EQ(::write(b_->link().wake(), &full, sizeof full), 8);
  ASSERT_EQ(::fcntl(b_->link().wake(), F_SETFL, 0), 0);
  a_->send(b_->mac(), "it returns");
  EXPECT_THAT(b_->take(), ElementsAre("it returns"));
}

/// A fake hub for process 1, which sends notes about process 2. Its clock stands still.
class FakeHub {
 public:
  FakeHub() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    Joined joined;
    joined.number = 1;
    joined.mac = mac_of(1);
    joined.out.emplace(*util::SharedRing::attach(to_hub_.fd()));
    joined.in.emplace(*util::SharedRing::attach(from_hub_.fd()));
    joined.wake_hub.reset(::eventfd(0, EFD_NONBLOCK));
    joined.wake_me.reset(::eventfd(0, EFD_NONBLOCK));
    joined.socket.reset(ends[1]);
    process_.emplace(std::move(joined), [] { return util::Time(1h); });
  }
  Process& process() { return *process_; }

  void say(LinkNote::Kind kind) {
    const auto frame = LinkNote{.to = wire::MacAddress::from_u64(0x025FCB000001),
                                .from = wire::MacAddress::from_u64(0x025FCB000002),
                                .kind = kind}
                           .frame();
    std::ranges::copy(frame.head(), out_.reserve(frame.size()).begin());
    out_.publish();
  }
  /// `to_it` is the ring that process 1 writes to.
  void introduce(const util::SharedRing& to_it, int wake) {
    const auto from_it = *util::SharedRing::create(util::SharedRing::kCapacityMin);
    Introduction introduction;
    introduction.number = 2;
    introduction.mac = mac_of(2);
    EXPECT_TRUE(send_message(socket_.get(), std::as_bytes(std::span(&introduction, 1)),
                             std::array{to_it.fd(), from_it.fd(), wake}));
  }
  void go() { socket_.reset(); }
  /// Reads everything that process 1 sent to the hub.
  void take_all() {
    while (!in_.next().empty()) in_.release(in_.position());
  }

 private:
  UniqueFd socket_;
  util::SharedRing to_hub_ = *util::SharedRing::create(util::SharedRing::kCapacityMin);
  util::SharedRing from_hub_ = *util::SharedRing::create(util::SharedRing::kCapacityMin);
  util::RingProducer out_{from_hub_};
  util::RingConsumer in_{to_hub_};
  std::optional<Process> process_;
};

std::size_t links_with_wake(int wake) {
  FakeHub hub;
  hub.introduce(*util::SharedRing::create(util::SharedRing::kCapacityMin), wake);
  hub.say(LinkNote::Kind::kIntroduced);
  hub.say(LinkNote::Kind::kReady);
  hub.process().turn();
  hub.take_all();
  hub.process().turn();
  return hub.process().link().links();
}

// The number was reused, and the note that its former process had ended was lost.
TEST(Introduced, TheLastOneOfAnAddressHasIt) {
  FakeHub hub;
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK));
  const auto before = *util::SharedRing::create(util::SharedRing::kCapacityMin);
  const auto now = *util::SharedRing::create(util::SharedRing::kCapacityMin);
  hub.introduce(before, bell.get());
  hub.introduce(now, bell.get());
  hub.say(LinkNote::Kind::kReady);
  hub.process().turn();
  hub.take_all();
  hub.process().turn();
  EXPECT_EQ(hub.process().link().links(), 1u);
  hub.process().push(0x025FCB000002, "hello");
  util::RingConsumer of_before(before), of_now(now);
  EXPECT_TRUE(of_before.next().empty()) << "nobody reads it";
  EXPECT_FALSE(of_now.next().empty());
}

TEST(Introduced, AnEndThatIsToldBeforeTheIntroductionIsReadCounts) {
  FakeHub hub;
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK));
  hub.introduce(*util::SharedRing::create(util::SharedRing::kCapacityMin), bell.get());
  hub.say(LinkNote::Kind::kGone);
  hub.process().turn();
  hub.say(LinkNote::Kind::kReady);  // about the next process with the number
  hub.process().turn();
  hub.take_all();
  hub.process().turn();
  EXPECT_EQ(hub.process().link().links(), 0u);
}

TEST(Introduced, TheEndOfTheHubIsSeenOnce) {
  FakeHub hub;
  EXPECT_FALSE(hub.process().link().see_hub_go());
  hub.go();
  EXPECT_TRUE(hub.process().link().see_hub_go());
  EXPECT_FALSE(hub.process().link().see_hub_go());
}

TEST(Introduced, ADescriptorThatIsNoEventfdWakesNoProcess) {
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK));
  EXPECT_EQ(links_with_wake(bell.get()), 1u);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const UniqueFd read(ends[0]), write(ends[1]);
  EXPECT_EQ(links_with_wake(write.get()), 0u);
}

TEST_F(UplinkTest, MulticastGoesToAllByTheHub) {
  const auto c = join_hub();
  make_link();
  a_->send(0xffffffffffff, "to all");
  run_all();
  EXPECT_THAT(b_->take(), ElementsAre("to all"));
  EXPECT_THAT(c->take(), Contains("to all"));
}

TEST_F(UplinkTest, WithATapAllFramesPassTheHub) {
  struct Looker final : fabric::Tap {
    void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
    void handle_frame(std::uint32_t, const wire::Frame&) override { ++frames; }
    int frames = 0;
  } looker;
  start({.tap = &looker});
  for (int i = 0; i < kMany; ++i) a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_EQ(b_->take().size(), kMany);
  EXPECT_EQ(a_->link().links(), 0u);
  EXPECT_EQ(looker.frames, kMany);
}

TEST_F(UplinkTest, AProcessCannotSendNotesAsAnother) {
  make_link();
  const auto c = join_hub();
  using Kind = LinkNote::Kind;
  const auto mac = [](std::uint64_t value) { return wire::MacAddress::from_u64(value); };
  for (const auto kind : {Kind::kGone, Kind::kIntroduced, Kind::kReady, Kind::kSwitched}) {
    c->send(LinkNote{.to = mac(a_->mac()), .from = mac(b_->mac()), .kind = kind}.frame());
    c->send(LinkNote{.to = mac(a_->mac()), .from = mac(c->mac()), .kind = kind}.frame());
  }
  run_all();
  a_->send(b_->mac(), "straight");
  EXPECT_THAT(b_->take(), ElementsAre("straight"));
  EXPECT_EQ(a_->link().links(), 1u);
}

TEST_F(UplinkTest, TheLastNoteOfAProcessCannotBeAnothers) {
  make_link();
  auto c = join_hub();
  const auto mac = [](std::uint64_t value) { return wire::MacAddress::from_u64(value); };
  c->push(LinkNote{.to = mac(a_->mac()), .from = mac(b_->mac()), .kind = LinkNote::Kind::kGone}
              .frame());
  c.reset();
  run_all();
  EXPECT_EQ(a_->link().links(), 1u);
  b_->send(a_->mac(), "straight");
  EXPECT_THAT(a_->take(), ElementsAre("straight"));
}

TEST_F(UplinkTest, TheEndOfALinkIsReportedLaterToAFullRing) {
  start({.ring_capacity = util::SharedRing::kCapacityMin});
  make_link();
  const auto c = join_hub();
  // Fill the ring until a note does not fit.
  for (const std::size_t size : {9000, 46}) {
    // Frames first wait in the hub for a tenth of a second.
    const auto before = hub_->counters().dropped;
    for (int i = 0; i < 1000 && hub_->counters().dropped == before; ++i) {
      now_ += 1ms;
      c->push(a_->mac(), std::string(size, 'x'));
      run_hub();
    }
    ASSERT_GT(hub_->counters().dropped, before);
  }
  const auto lost = hub_->counters().dropped;
  b_.reset();
  run_hub();
  c->push(c->mac(), "some turns of the hub");
  run_hub();
  EXPECT_EQ(hub_->counters().dropped, lost) << "it is no frame that is lost";
  EXPECT_EQ(a_->link().links(), 1u);
  (void)a_->take();
  c->push(a_->mac(), "there is room now");
  run_all();
  EXPECT_EQ(a_->link().links(), 0u);
}

TEST_F(UplinkTest, ALinkOfManyHasAnEndAndTheHubTakesTheRest) {
  std::vector<std::unique_ptr<Process>> others;
  for (int i = 0; i < 40; ++i) {
    others.push_back(join_hub());
    others.back()->send(a_->mac(), "I am here");
  }
  run_all();
  for (const auto& other : others) {
    (void)other->take();
    for (int i = 0; i < kMany; ++i) a_->send(other->mac(), "hello");
    run_hub();
    other->turn();
    run_all();
    EXPECT_EQ(other->take().size(), static_cast<std::size_t>(kMany));
  }
  EXPECT_EQ(a_->link().links(), 32u);
}

}  // namespace
}  // namespace softhca::hub

// The process that exchanges the frames of others: numbers, frames, and clients that misbehave.
#include "hub/hub.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "fabric/recorder.h"
#include "hub/hello.h"
#include "hub/join.h"
#include "os/unix_socket.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kBroadcast = 0xffffffffffff;

std::uint64_t joined_mac(const Joined& joined) {
  return wire::MacAddress::from(std::as_bytes(std::span(joined.mac))).to_u64();
}

/// A process that has joined. It has a switch of its own with one station.
class Station {
 public:
  explicit Station(Joined joined)
      : number_(joined.number),
        mac_(joined_mac(joined)),
        joined_(std::move(joined)),
        station_(fabric_.create_port("station")),
        link_(std::make_unique<fabric::RingPort>(fabric_.create_port("hub"),
                                                 *std::move(joined_.out), *std::move(joined_.in))) {
    station_->set_receiver(&receiver_);
  }
  ~Station() { link_.reset(); }

  unsigned number() const { return number_; }
  std::uint64_t mac() const { return mac_; }
  Joined& joined() { return joined_; }
  fabric::RingPort& link() { return *link_; }

  void send(std::uint64_t to, std::string_view text) {
    station_->transmit(fabric::frame_of(to, mac_, text));
    fabric_.deliver(fabric::kAllFrames);
    if (link_->settle()) wake_hub();
  }
  void send_raw(const wire::Frame& frame) {
    station_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
    if (link_->settle()) wake_hub();
  }
  void wake_hub() const {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(joined_.wake_hub.get(), &one, sizeof one), 8);
  }
  /// Sleeps until the hub wakes it. False after twenty seconds.
  bool sleep() {
    while (link_->prepare_to_sleep()) {
      pollfd bell{.fd = joined_.wake_me.get(), .events = POLLIN, .revents = 0};
      if (::poll(&bell, 1, 20'000) != 1) return false;
      std::uint64_t count;
      (void)!::read(bell.fd, &count, sizeof count);
    }
    return true;
  }
  /// Waits for frames and returns them.
  std::vector<std::string> receive() {
    EXPECT_TRUE(sleep()) << "nothing comes";
    return take();
  }
  std::vector<std::string> take() {
    link_->receive(fabric::kAllFrames);
    fabric_.deliver(fabric::kAllFrames);
    (void)link_->settle();
    return std::exchange(receiver_.texts, {});
  }
  bool hub_is_gone() const {
    pollfd end{.fd = joined_.socket.get(), .events = POLLIN, .revents = 0};
    return ::poll(&end, 1, 20'000) == 1;
  }

 private:
  const unsigned number_;
  const std::uint64_t mac_;
  Joined joined_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> station_;
  fabric::Recorder receiver_;
  std::unique_ptr<fabric::RingPort> link_;
};

/// A frame that earlier versions took as "this process exchanges frames without the hub".
wire::Frame willing_note(const Station& station) {
  const auto from = wire::MacAddress::from_u64(station.mac());
  return LinkNote{.to = from, .from = from, .kind = static_cast<LinkNote::Kind>(1)}.frame();
}

/// A hub whose loop runs in a thread, as if in another process. Its clock moves only when a test
/// moves it.
class HubTest : public testing::Test {
 protected:
  HubTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ / "hub";
    util::set_log_sink([this](auto, auto text) { log_ += std::string(text) + "\n"; });
    start({});
  }
  ~HubTest() override {
    stop();
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }

  void start(Hub::Options options, util::TimeSource clock = {}) {
    stop();
    loop_ = *os::EventLoop::create();
    if (clock) {
      options.clock = std::move(clock);
    } else {
      options.clock = [this] { return util::Time(now_.load()); };
      options.poll = {};  // which would never end
    }
    hub_ = *Hub::create(*loop_, path_, options);
    thread_ = std::thread([this] {
      while (!loop_->stopped()) loop_->run_once(util::kNever);
    });
  }
  /// Ends the loop's thread, but keeps the hub.
  void pause() {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
  }
  void stop() {
    pause();
    hub_.reset();
    loop_.reset();
  }
  std::unique_ptr<Station> join_hub() {
    auto joined = join(path_);
    EXPECT_TRUE(joined) << joined.error().message;
    return std::make_unique<Station>(*std::move(joined));
  }
  /// Runs `look` between two turns of the loop.
  template <class Look>
  auto in_loop(Look look) {
    pause();
    for (int i = 0; i < 20; ++i) loop_->run_once(util::Time::min());
    return look();
  }

  std::filesystem::path directory_;
  std::string path_;
  std::string log_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<Hub> hub_;
  std::atomic<util::Duration> now_ = util::Duration(1h);
  std::thread thread_;
};

TEST_F(HubTest, TwoProcessesExchangeFramesBothWays) {
  const auto a = join_hub(), b = join_hub();
  a->send(b->mac(), "question");
  EXPECT_THAT(b->receive(), ElementsAre("question"));
  b->send(a->mac(), "answer");
  EXPECT_THAT(a->receive(), ElementsAre("answer"));
}

TEST_F(HubTest, EachProcessHasANumberAndAnAddressOfItsOwn) {
  const auto a = join_hub(), b = join_hub();
  EXPECT_EQ(a->number(), 1u);
  EXPECT_EQ(b->number(), 2u);
  EXPECT_EQ(a->mac(), 0x025FCB000001u);
  EXPECT_EQ(b->mac(), 0x025FCB000002u);
}

TEST_F(HubTest, ANumberIsNotGivenAgainSoon) {
  join_hub().reset();
  EXPECT_EQ(join_hub()->number(), 2u);
}

TEST_F(HubTest, AProcessThatHasGoneLeavesTheOthersTheirFrames) {
  const auto a = join_hub(), b = join_hub();
  auto c = join_hub();
  c->send(kBroadcast, "I am here");
  EXPECT_THAT(a->receive(), ElementsAre("I am here"));
  EXPECT_THAT(b->receive(), ElementsAre("I am here"));
  c.reset();
  a->send(b->mac(), "still there");
  EXPECT_THAT(b->receive(), ElementsAre("still there"));
  in_loop([this] {
    EXPECT_EQ(hub_->clients(), 2u);
    EXPECT_EQ(hub_->counters().left, 1u);
    EXPECT_EQ(hub_->counters().expelled, 0u);
  });
}

TEST_F(HubTest, FramesForAProcessThatLeftReachNoOther) {
  const auto a = join_hub(), b = join_hub();
  auto c = join_hub();
  c->send(b->mac(), "I am here");
  EXPECT_THAT(b->receive(), ElementsAre("I am here"));
  const auto its = c->mac();
  c.reset();
  in_loop([this] { EXPECT_EQ(hub_->clients(), 2u); });
  for (int i = 0; i < 3; ++i) a->send(its, "are you there?");
  a->send(b->mac(), "nobody is there");
  in_loop([this] { EXPECT_EQ(hub_->counters().to_departed, 3u); });
  EXPECT_THAT(b->take(), ElementsAre("nobody is there"));
}

TEST_F(HubTest, FramesSentBeforeAProcessLeftArrive) {
  const auto a = join_hub();
  auto b = join_hub();
  pause();
  for (int i = 0; i < 500; ++i) b->send(a->mac(), "last words");
  b.reset();
  in_loop([] {});
  EXPECT_EQ(a->take().size(), 500u);
}

TEST_F(HubTest, OnlyTheProcessThatWritesToItsSocketIsExpelled) {
  const auto a = join_hub(), b = join_hub(), c = join_hub();
  ASSERT_EQ(::send(c->joined().socket.get(), "nonsense", 8, MSG_NOSIGNAL), 8);
  EXPECT_TRUE(c->hub_is_gone());
  a->send(b->mac(), "still there");
  EXPECT_THAT(b->receive(), ElementsAre("still there"));
  in_loop([this] {
    EXPECT_EQ(hub_->clients(), 2u);
    EXPECT_EQ(hub_->counters().expelled, 1u);
  });
  EXPECT_THAT(log_, HasSubstr("process 3"));
}

/// Joins with its rings' descriptors still open, to write what it likes.
// A guest sends any frame it likes, and its server sends all of them.
TEST_F(HubTest, AFrameMakesNoProcessWilling) {
  const auto server = join_hub(), program = join_hub();
  ASSERT_EQ(::send(program->joined().socket.get(), &kWilling, 1, 0), 1);
  server->send_raw(willing_note(*server));
  for (int i = 0; i < 40; ++i) {
    server->send(program->mac(), "to the program");
    EXPECT_FALSE(program->receive().empty());
    program->send(server->mac(), "to the guest");
    EXPECT_FALSE(server->receive().empty());
  }
  char byte;
  EXPECT_EQ(::recv(server->joined().socket.get(), &byte, 1, MSG_DONTWAIT), -1) << "it is told";
  EXPECT_EQ(::recv(program->joined().socket.get(), &byte, 1, MSG_DONTWAIT), -1);
  pause();
  EXPECT_EQ(hub_->counters().links, 0u);
}

TEST_F(HubTest, OnlyTheProcessThatBreaksItsRingIsExpelled) {
  const auto a = join_hub(), b = join_hub();
  const auto socket = *os::connect_unix(path_, "test");
  std::array<char, 64> hello;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control;
  iovec bytes{.iov_base = hello.data(), .iov_len = hello.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ASSERT_EQ(::recvmsg(socket.get(), &message, 0), 24);
  std::array<int, 4> fds;
  std::memcpy(fds.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  const std::uint64_t nonsense = ~std::uint64_t{0} - 7, one = 1;
  ASSERT_EQ(::pwrite(fds[0], &nonsense, sizeof nonsense, 0), 8);
  ASSERT_EQ(::write(fds[2], &one, sizeof one), 8);
  pollfd end{.fd = socket.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 20'000), 1);
  for (const int fd : fds) ::close(fd);
  a->send(b->mac(), "still there");
  EXPECT_THAT(b->receive(), ElementsAre("still there"));
  in_loop([this] { EXPECT_EQ(hub_->counters().expelled, 1u); });
  EXPECT_THAT(log_, HasSubstr("rules of its rings"));
}

TEST_F(HubTest, AFrameForASlowReceiverWaitsUntilThereIsRoom) {
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  const auto a = join_hub(), b = join_hub();
  b->send(kBroadcast, "I am here");
  EXPECT_THAT(a->receive(), ElementsAre("I am here"));
  std::vector<std::string> sent, got;
  for (int i = 0; i < 120; ++i) {
    // Respects Uplink::room, as a device does, so its own ring is never full.
    while (a->link().room(8192) < 8192) {
      for (auto& text : b->take()) got.push_back(std::move(text));
    }
    a->send(b->mac(), sent.emplace_back(std::to_string(i) + std::string(4000, 'x')));
  }
  while (got.size() < sent.size() && b->sleep()) {
    for (auto& text : b->take()) got.push_back(std::move(text));
  }
  EXPECT_EQ(got, sent);
  in_loop([this] { EXPECT_EQ(hub_->counters().dropped, 0u); });
}

TEST_F(HubTest, FramesSentBeforeAProcessLeftWaitForRoom) {
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  auto a = join_hub();
  const auto b = join_hub();
  b->send(kBroadcast, "I am here");
  EXPECT_THAT(a->receive(), ElementsAre("I am here"));
  constexpr std::size_t kFrames = 44;  // more than one ring holds, but less than two
  for (std::size_t i = 0; i != kFrames; ++i) {
    while (a->link().room(8192) < 8192) std::this_thread::yield();
    a->send(b->mac(), std::string(4000, 'x'));
  }
  a.reset();
  // The hub sees that a has left before b takes a frame.
  in_loop([this] {
    EXPECT_EQ(hub_->counters().left, 0u) << "its last frames wait";
    EXPECT_EQ(hub_->counters().dropped, 0u);
  });
  std::size_t got = 0;
  while (hub_->clients() == 2) {
    got += b->take().size();
    loop_->run_once(util::kNever);  // the hub's timer ends it while frames wait
  }
  got += b->take().size();
  EXPECT_EQ(got, kFrames);
  EXPECT_EQ(hub_->counters().dropped, 0u);
  EXPECT_EQ(hub_->counters().left, 1u);
}

TEST_F(HubTest, OnlyItsSendersWaitForAProcessThatTakesNothing) {
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  const auto a = join_hub(), b = join_hub(), c = join_hub(), idle = join_hub();
  for (const auto* station : {&b, &idle}) {
    (*station)->send(kBroadcast, "I am here");
    EXPECT_THAT(a->receive(), ElementsAre("I am here"));
  }
  EXPECT_THAT(b->receive(), ElementsAre("I am here"));
  const std::string text(4000, 'x');
  // More than the idle process has room for, but no more than a's own ring and the hub's backlog
  // hold.
  for (int i = 0; i < 40; ++i) {
    while (a->link().room(8192) < 8192) std::this_thread::yield();
    a->send(idle->mac(), text);
  }
  a->send(b->mac(), "behind them");
  c->send(b->mac(), "at once");
  EXPECT_THAT(b->receive(), ElementsAre("at once"));
  c->send(kBroadcast, "to all");
  EXPECT_THAT(b->receive(), ElementsAre("to all"));
  EXPECT_THAT(b->take(), IsEmpty()) << "no time has passed";
  now_ = now_.load() + Patience::kLongest;
  EXPECT_THAT(b->receive(), ElementsAre("behind them"));
  in_loop([] {});
  EXPECT_THAT(log_, HasSubstr("process 4"));
  EXPECT_THAT(log_, HasSubstr("does not keep up"));
}

TEST_F(HubTest, AProcessOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const auto pid = ::fork();
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;
    ::_exit(::setresuid(kNobody, kNobody, kNobody) == 0 && !join(path_) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  in_loop([this] { EXPECT_EQ(hub_->counters().refused, 1u); });
  EXPECT_THAT(log_, HasSubstr("of another user (uid 65534)"));
}

// O_NONBLOCK is a property of the open file, and the process shares the eventfd's open file.
TEST_F(HubTest, AFullBlockingEventfdDelaysNoOther) {
  const auto a = join_hub(), b = join_hub(), hostile = join_hub();
  const int bell = hostile->joined().wake_me.get();
  const std::uint64_t full = ~std::uint64_t{0} - 1;
  ASSERT_EQ(::write(bell, &full, sizeof full), 8);
  ASSERT_EQ(::fcntl(bell, F_SETFL, 0), 0);
  ASSERT_TRUE(hostile->link().prepare_to_sleep());
  a->send(kBroadcast, "to all");
  EXPECT_THAT(b->receive(), ElementsAre("to all"));
  a->send(b->mac(), "to b");
  EXPECT_THAT(b->receive(), ElementsAre("to b"));
}

TEST_F(HubTest, TwoHundredProcessesReachEachOther) {
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  std::vector<std::unique_ptr<Station>> all;
  for (int i = 0; i < 200; ++i) all.push_back(join_hub());
  all.back()->send(kBroadcast, "to all");
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    EXPECT_THAT(all[i]->receive(), ElementsAre("to all")) << i;
  }
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->send(all.back()->mac(), "hello");
  std::size_t heard = 0;
  while (heard < all.size() - 1) {
    const auto now = all.back()->receive().size();
    ASSERT_NE(now, 0u);
    heard += now;
  }
  all.clear();
  in_loop([this] { EXPECT_EQ(hub_->clients(), 0u); });
}

TEST_F(HubTest, OneMoreThanThereMayBeIsRefused) {
  start({.clients_max = 2});
  const auto a = join_hub(), b = join_hub();
  const auto c = join(path_);
  ASSERT_FALSE(c);
  EXPECT_THAT(c.error().message, HasSubstr("refused"));
  in_loop([this] { EXPECT_EQ(hub_->counters().refused, 1u); });
}

TEST_F(HubTest, AJoinIsRefusedWhenNoNumberIsFree) {
  start({.number_max = 2});
  auto a = join_hub();
  const auto b = join_hub();
  const auto c = join(path_);
  ASSERT_FALSE(c);
  EXPECT_THAT(c.error().message, HasSubstr("refused"));
  a.reset();
  in_loop([this] { EXPECT_EQ(hub_->clients(), 1u); });
  EXPECT_THAT(log_, HasSubstr("no number is free"));
  const auto socket = os::connect_unix(path_, "test");
  in_loop([this] { EXPECT_EQ(hub_->clients(), 2u); });
}

TEST_F(HubTest, WithoutDescriptorsOneIsTurnedAwayAndTheHubDoesNotSpin) {
  pause();
  const auto socket = *os::connect_unix(path_, "test");
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const UniqueFd next(::dup(0));
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(next.get()), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 5; ++i) loop_->run_once(util::Time::min());
  const auto called = loop_->run_once(util::Time::min());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(called, 0u);
  EXPECT_EQ(hub_->counters().refused, 1u);
  char byte;
  EXPECT_EQ(::recv(socket.get(), &byte, 1, 0), 0);
}

TEST_F(HubTest, AHubWithNothingToDoSleeps) {
  // Each clock reading takes a microsecond: the hub polls for more frames for some of them.
  std::atomic<int> looks = 0;
  start({}, [&looks] { return util::Time(1h + std::chrono::microseconds(++looks)); });
  const auto a = join_hub(), b = join_hub();
  a->send(b->mac(), "x");
  (void)b->receive();
  pause();
  const auto look_often = [&] {
    for (int i = 0; i < 100; ++i) loop_->run_once(util::Time::min());
    return looks.load();
  };
  const auto before = look_often();
  EXPECT_EQ(look_often(), before);
  stop();  // the clock goes out of scope
}

TEST_F(HubTest, TheEndOfTheHubIsSeen) {
  const auto a = join_hub();
  stop();
  EXPECT_TRUE(a->hub_is_gone());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace softhca::hub

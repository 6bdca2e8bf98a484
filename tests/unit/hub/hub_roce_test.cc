// Processes that ask a hub for their sockets of RoCEv2 addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hub/address_requests.h"
#include "hub/cm_packets.h"
#include "hub/forwarded_datagram.h"
#include "hub/hub.h"
#include "hub/join.h"
#include "hub/shared_addresses.h"
#include "hub/udp_sender.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A process that has joined, and the datagrams in its ring.
class RoceProcess {
 public:
  explicit RoceProcess(Joined joined)
      : joined_(std::move(joined)),
        link_(fabric_.create_port("hub"), *std::move(joined_.out), *std::move(joined_.in)) {}

  const Joined& joined() const { return joined_; }
  /// Waits for a forwarded datagram, and returns its packet.
  std::vector<std::byte> datagram() {
    while (packets_.empty()) {
      link_.receive(16, [this](const wire::Frame& frame) { return take(frame); });
      (void)link_.settle();
      if (!packets_.empty() || !link_.prepare_to_sleep()) continue;
      if (!is_readable(joined_.wake_me.get())) {
        ADD_FAILURE() << "nothing comes";
        return {};
      }
      std::uint64_t count;
      (void)!::read(joined_.wake_me.get(), &count, sizeof count);
    }
    auto first = packets_.front();
    packets_.erase(packets_.begin());
    return first;
  }
  bool is_put_out() const {
    pollfd end{.fd = joined_.socket.get(), .events = POLLIN, .revents = 0};
    char byte;
    return ::poll(&end, 1, kDeadlineMs) == 1 && ::recv(end.fd, &byte, 1, MSG_DONTWAIT) <= 0;
  }
  void say(std::string_view text) const {
    EXPECT_EQ(::send(joined_.socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

 private:
  fabric::Verdict take(const wire::Frame& frame) {
    std::vector<std::byte> bytes(frame.size());
    frame.copy_range(0, bytes);
    const auto one = ForwardedDatagram::parse(bytes);
    EXPECT_TRUE(one);
    if (one) packets_.emplace_back(one->datagram.packet.begin(), one->datagram.packet.end());
    return fabric::Verdict::kTaken;
  }

  Joined joined_;
  fabric::Switch fabric_;
  fabric::RingPort link_;
  std::vector<std::vector<std::byte>> packets_;
};

class HubRoceTest : public testing::Test {
 protected:
  HubRoceTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    util::set_log_sink([](auto, auto) {});
    Hub::Options options;
    options.roce_port = port;
    options.clock = [this] { return util::Time(now_.load()); };
    options.poll = {};
    hub_ = *Hub::create(*loop_, (directory_ / "hub").string(), options);
    thread_ = std::thread([this] {
      while (!loop_->stopped()) loop_->run_once(util::kNever);
    });
  }
  ~HubRoceTest() override {
    loop_->stop();
    thread_.join();
    hub_.reset();
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }

  std::unique_ptr<RoceProcess> join_hub() {
    auto joined = join((directory_ / "hub").string());
    EXPECT_TRUE(joined) << joined.error().message;
    return std::make_unique<RoceProcess>(*std::move(joined));
  }
  JoinedAddress at_address(const RoceProcess& process) {
    auto joined = join_address(process.joined(), address);
    EXPECT_TRUE(joined) << joined.error().message;
    return joined ? *std::move(joined) : JoinedAddress{};
  }

  const wire::Gid address = wire::Gid::from_ipv4(127, 0, 0, 1);
  UdpSender sender{address};
  const std::uint16_t port = free_port(address);
  std::filesystem::path directory_;
  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  std::atomic<util::Duration> now_ = util::Duration(1h);
  std::unique_ptr<Hub> hub_;
  std::thread thread_;
};

TEST_F(HubRoceTest, ProcessesOfOneAddressGetTheirOwnPackets) {
  const auto a = join_hub(), b = join_hub();
  const auto at_a = at_address(*a), at_b = at_address(*b);
  EXPECT_EQ(at_a.block, 1);
  EXPECT_EQ(at_b.block, 2);
  sender.send(address, port, packet_to(2, 7));
  sender.send(address, port, packet_to(1, 8));
  EXPECT_EQ(received_at(at_b.socket.get()), packet_to(2, 7));
  EXPECT_EQ(received_at(at_a.socket.get()), packet_to(1, 8));
}

TEST_F(HubRoceTest, ARefusalHasAReasonAndLeavesTheProcessOnTheHub) {
  const auto process = join_hub();
  const auto elsewhere = join_address(process->joined(), wire::Gid::from_ipv4(240, 0, 0, 1));
  ASSERT_FALSE(elsewhere);
  EXPECT_THAT(elsewhere.error().message, HasSubstr("240.0.0.1 is no address of this machine"));
  EXPECT_EQ(at_address(*process).block, 1);
}

TEST_F(HubRoceTest, ATakenPortIsNamed) {
  RoceRefusal refusal;
  const auto other = RoceGroup::open(address, port, refusal);
  ASSERT_TRUE(other);
  const auto process = join_hub();
  const auto refused = join_address(process->joined(), address);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is taken by another process of yours"));
}

TEST_F(HubRoceTest, AConnectionRequestArrivesInTheRingOfItsListener) {
  const auto a = join_hub(), b = join_hub();
  const auto at_a = at_address(*a), at_b = at_address(*b);
  say(b->joined().socket.get(), listens(RequestKind::kListen));
  // The hub reads requests in order: with the answer to the next one it knows the listener.
  EXPECT_EQ(at_address(*b).block, at_b.block);
  const auto packet = cm_request(kService, 5);
  sender.send(address, port, packet);
  EXPECT_TRUE(std::ranges::equal(b->datagram(), packet.bytes));
  const auto reply = cm_packet(Cm::REP, 1, 0x01'00'00'09);
  sender.send(address, port, reply);
  EXPECT_TRUE(std::ranges::equal(a->datagram(), reply.bytes));
  say(b->joined().socket.get(), listens(RequestKind::kUnlisten));
  EXPECT_EQ(at_address(*b).block, at_b.block);
  now_ = now_.load() + CmDispatch::kListensAgain;
  sender.send(address, port, cm_request(kService, 6));
  EXPECT_TRUE(std::ranges::equal(a->datagram(), cm_request(kService, 6).bytes));
}

// The hub reads one request of a process in a turn, and all datagrams of an address.
TEST_F(HubRoceTest, ARequestIsNotRefusedWhileItsListenerIsUnread) {
  const auto a = join_hub(), b = join_hub();
  const auto at_a = at_address(*a), at_b = at_address(*b);
  loop_->stop();
  thread_.join();
  const int socket = b->joined().socket.get();
  for (std::uint64_t other = 1; other != 100; ++other) {
    say(socket, {.kind = RequestKind::kListen, .address = CmService::all(), .service = other});
  }
  say(socket, listens(RequestKind::kListen));
  say(socket, listens(RequestKind::kUnlisten));
  say(socket, listens(RequestKind::kListen));
  const auto packet = cm_request(kService, 5);
  sender.send(address, port, packet);
  while (hub_->station().host().counters().cm.forwarded == 0) loop_->run_once(util::kNever);
  EXPECT_EQ(hub_->station().host().counters().cm.unexpected, 0u);
  EXPECT_TRUE(std::ranges::equal(b->datagram(), packet.bytes));
  // Other requests wait for their turn, and those behind them, too.
  for (int again = 0; again != 100; ++again) say(socket, listens(RequestKind::kListen));
  say(socket, {.kind = RequestKind::kJoinAddress, .address = address});
  say(socket, {.kind = RequestKind::kListen, .address = CmService::all(), .service = kService + 1});
  sender.send(address, port, cm_request(kService + 1, 6));
  while (hub_->station().host().counters().cm.forwarded == 1) loop_->run_once(util::kNever);
  EXPECT_EQ(hub_->station().host().counters().cm.unexpected, 1u);
  thread_ = std::thread([] {});
}

TEST_F(HubRoceTest, ARequestGoesToTheNextListenerWhileTheEndOfTheLastIsUnread) {
  const auto a = join_hub(), b = join_hub();
  const auto at_a = at_address(*a), at_b = at_address(*b);
  say(a->joined().socket.get(), listens(RequestKind::kListen));
  EXPECT_EQ(at_address(*a).block, at_a.block);
  loop_->stop();
  thread_.join();
  for (std::uint64_t other = 1; other != 100; ++other) {
    const Request one{.kind = RequestKind::kListen, .address = CmService::all(), .service = other};
    say(a->joined().socket.get(), one);
    say(b->joined().socket.get(), one);
  }
  say(a->joined().socket.get(), listens(RequestKind::kUnlisten));
  say(b->joined().socket.get(), listens(RequestKind::kListen));
  const auto packet = cm_request(kService, 5);
  sender.send(address, port, packet);
  while (hub_->station().host().counters().cm.forwarded == 0) loop_->run_once(util::kNever);
  EXPECT_TRUE(std::ranges::equal(b->datagram(), packet.bytes));
  thread_ = std::thread([] {});
}

TEST_F(HubRoceTest, TheBlockOfAProcessThatHasLeftIsGivenOutAgain) {
  const auto a = join_hub();
  auto b = join_hub();
  const auto at_a = at_address(*a);
  EXPECT_EQ(at_address(*b).block, 2);
  b.reset();
  const auto c = join_hub();
  EXPECT_EQ(at_address(*c).block, 3) << "2 rests";
  now_ = now_.load() + RoceBlocks::kRest;
  const auto d = join_hub();
  const auto at_d = at_address(*d);
  EXPECT_EQ(at_d.block, 2);
  sender.send(address, port, packet_to(2, 7));
  EXPECT_EQ(received_at(at_d.socket.get()), packet_to(2, 7));
}

TEST_F(HubRoceTest, AProcessThatAsksForNothingIsPutOut) {
  const auto nonsense = join_hub(), twice = join_hub();
  nonsense->say("l" + std::string(24, 'x') + "?");
  twice->say("ww");
  EXPECT_TRUE(nonsense->is_put_out());
  EXPECT_TRUE(twice->is_put_out());
  EXPECT_EQ(at_address(*join_hub()).block, 1);
}

TEST_F(HubRoceTest, ABlockComesBeforeTheFirstAddress) {
  const auto a = join_hub(), b = join_hub();
  const auto of_b = share(b->joined()), of_a = share(a->joined()), again = share(b->joined());
  ASSERT_TRUE(of_a && of_b && again);
  EXPECT_EQ(of_b->block, 1);
  EXPECT_EQ(of_a->block, 2);
  EXPECT_EQ(again->block, 1);
  EXPECT_EQ(of_a->station, of_b->station);
  EXPECT_NE(of_a->station, 0u);
  EXPECT_NE(of_a->station, a->joined().number);
  EXPECT_NE(of_a->station, b->joined().number);
  EXPECT_NE(join_hub()->joined().number, of_a->station);
  EXPECT_EQ(at_address(*a).block, 2);
}

TEST_F(HubRoceTest, RequestsMayComeInPieces) {
  const auto process = join_hub();
  process->say("l123");
  process->say("456789012345678901234l123456789012");
  process->say("345678901234q");
  process->say(std::string(16, 'x'));
  EXPECT_EQ(at_address(*process).block, 1);
}

TEST_F(HubRoceTest, AHubThatHasEndedIsNamed) {
  const auto process = join_hub();
  process->say("?");
  ASSERT_TRUE(process->is_put_out());
  const auto refused = share(process->joined());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("hub: "));
}

}  // namespace
}  // namespace softhca::hub

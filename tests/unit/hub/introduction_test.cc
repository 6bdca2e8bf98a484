// Introductions and notes that a process gets from its hub.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "hub/fd_message.h"
#include "hub/hub.h"
#include "hub/uplink_process.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

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
    joined.out.emplace(*os::SharedRing::attach(to_hub_.fd()));
    joined.in.emplace(*os::SharedRing::attach(from_hub_.fd()));
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
  void forward(const ForwardedDatagram& datagram) {
    wire::Frame frame;
    datagram.write(wire::MacAddress::from_u64(0x025FCB000001), frame);
    frame.copy_range(0, out_.reserve(frame.size()));
    out_.publish();
  }
  /// `to_it` is the ring that process 1 writes to.
  void introduce(const os::SharedRing& to_it, int wake) {
    const auto from_it = *os::SharedRing::create(os::SharedRing::kCapacityMin);
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
  os::SharedRing to_hub_ = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  os::SharedRing from_hub_ = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  os::RingProducer out_{from_hub_};
  os::RingConsumer in_{to_hub_};
  std::optional<Process> process_;
};

std::size_t links_with_wake(int wake) {
  FakeHub hub;
  hub.introduce(*os::SharedRing::create(os::SharedRing::kCapacityMin), wake);
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
  const auto before = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  const auto now = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  hub.introduce(before, bell.get());
  hub.introduce(now, bell.get());
  hub.say(LinkNote::Kind::kReady);
  hub.process().turn();
  hub.take_all();
  hub.process().turn();
  EXPECT_EQ(hub.process().link().links(), 1u);
  hub.process().push(0x025FCB000002, "hello");
  os::RingConsumer of_before(before), of_now(now);
  EXPECT_TRUE(of_before.next().empty()) << "its reader is gone";
  EXPECT_FALSE(of_now.next().empty());
}

TEST(Introduced, AnEndThatIsReportedBeforeTheIntroductionIsReadCounts) {
  FakeHub hub;
  const UniqueFd bell(::eventfd(0, EFD_NONBLOCK));
  hub.introduce(*os::SharedRing::create(os::SharedRing::kCapacityMin), bell.get());
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

TEST(ForwardedDatagrams, GoToTheirHandler) {
  FakeHub hub;
  const std::vector<std::byte> packet(280, std::byte{7});
  ForwardedDatagram datagram{.to = wire::Gid::from_ipv4(192, 0, 2, 1), .datagram = {}};
  datagram.datagram.source_port = 0xC123;
  datagram.datagram.packet = packet;
  hub.forward(datagram);
  hub.process().turn();  // it has no handler yet
  unsigned count = 0;
  hub.process().link().set_forwarded([&](const ForwardedDatagram& one) {
    ++count;
    EXPECT_EQ(one.to, datagram.to);
    EXPECT_EQ(one.datagram.source_port, 0xC123);
    EXPECT_TRUE(std::ranges::equal(one.datagram.packet, packet));
  });
  hub.forward(datagram);
  hub.process().turn();
  EXPECT_EQ(count, 1u);
}

}  // namespace
}  // namespace softhca::hub

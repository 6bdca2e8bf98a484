// Attacks of a program of `softhca run` on the others of its network: processes of one user at one
// hub.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bounds.h"
#include "fabric/switch.h"
#include "hub/hello.h"
#include "hub/hub.h"
#include "hub/link_note.h"
#include "hub/uplink.h"
#include "util/endian.h"

namespace softhca::neighbours {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kAll = 100'000;
/// Room that a device asks for before it sends.
constexpr std::size_t kTurn = std::size_t{1} << 20;
constexpr std::size_t kPayload = 4096;

/// A program: a device on its own switch, which sends numbered frames.
class Program final : public fabric::Receiver {
 public:
  explicit Program(hub::Joined joined)
      : mac_(wire::MacAddress::from(std::as_bytes(std::span(joined.mac)))),
        socket_(joined.socket.get()),
        device_(network_.create_port("device")),
        link_(network_.create_port("hub"), std::move(joined), util::monotonic_now) {
    device_->set_receiver(this);
  }
  ~Program() override { device_->set_receiver(nullptr); }

  const wire::MacAddress& mac() const { return mac_; }
  int socket() const { return socket_; }
  hub::Uplink& link() { return link_; }
  const std::vector<std::uint32_t>& received() const { return received_; }

  /// Sends only if there is room, as a device does. Returns whether it sent.
  bool send_if_there_is_room(const Program& to, std::uint32_t number) {
    if (link_.room(kTurn) == 0) return false;
    send(to.mac(), number);
    return true;
  }
  void send(const wire::MacAddress& to, std::uint32_t number) {
    std::array<std::byte, kPayload> payload{};
    util::store_be32(payload.data(), number);
    wire::Frame frame;
    wire::Ethernet{.destination = to, .source = mac_, .ether_type = wire::EtherType(0x88b5)}.emit(
        util::MutableView<wire::EthernetLayout>(frame.resize_head(wire::EthernetLayout::kSize)));
    ASSERT_TRUE(frame.add_segment(payload));
    transmit(frame);
  }
  void transmit(const wire::Frame& frame) {
    device_->transmit(frame);
    network_.deliver(kAll);
    link_.settle();
  }
  void turn(std::size_t frames = kAll) {
    link_.receive(frames);
    network_.deliver(kAll);
    link_.settle();
  }

  /// As a NIC, because the hub floods frames for a station that it does not know yet.
  void handle_frame(const wire::Frame& frame) override {
    const auto to = frame.link_header().first<wire::MacAddress::kSize>();
    if (wire::MacAddress::from(to) != mac_) return;
    std::vector<std::byte> bytes;
    frame.for_each_piece(wire::EthernetLayout::kSize, 4, [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    });
    received_.push_back(util::load_be32(bytes.data()));
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

 private:
  const wire::MacAddress mac_;
  const int socket_;
  std::vector<std::uint32_t> received_;
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> device_;
  hub::Uplink link_;
};

class SiblingNeighbours : public testing::Test {
 protected:
  SiblingNeighbours() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    loop_ = *os::EventLoop::create();
    hub_ = *hub::Hub::create(*loop_, directory_ / "hub", {});
    for (auto* program : {&sender_, &receiver_, &hostile_}) {
      *program = std::make_unique<Program>(join());
    }
  }
  ~SiblingNeighbours() override {
    sender_.reset();
    receiver_.reset();
    hostile_.reset();
    hub_.reset();
    std::filesystem::remove_all(directory_);
  }

  /// Joins the hub, which runs meanwhile.
  hub::Joined join() {
    std::optional<util::Result<hub::Joined>> joined;
    std::atomic<bool> done = false;
    std::thread joins([&] {
      joined.emplace(hub::join(directory_ / "hub"));
      done = true;
    });
    while (!done) run_hub();
    joins.join();
    return *std::move(*joined);
  }
  /// The hub takes turns with the programs: a thread of its own may get no processor for longer
  /// than senders wait for it.
  void run_hub() { loop_->run_once(util::Time::min()); }

  /// Sends `count` frames from sender to receiver, which must all arrive in order. Runs `attack`
  /// between frames. Returns how often the sender had to wait.
  template <class Attack>
  std::uint64_t exchange(std::uint32_t count, Attack attack) {
    std::uint64_t waits = 0;
    const auto end = util::monotonic_now() + kPatience;
    for (std::uint32_t sent = 0; receiver_->received().size() < count;) {
      attack(sent);
      if (sent != count && sender_->send_if_there_is_room(*receiver_, sent)) {
        ++sent;
      } else if (sent != count) {
        ++waits;
      }
      sender_->turn();
      run_hub();
      receiver_->turn();
      if (util::monotonic_now() > end) break;
    }
    std::vector<std::uint32_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0u);
    EXPECT_EQ(receiver_->received(), expected);
    return waits;
  }

  /// Longer than a busy machine takes, shorter than a working attack would.
  static constexpr auto kPatience = 60s;
  std::filesystem::path directory_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<hub::Hub> hub_;
  std::unique_ptr<Program> sender_, receiver_, hostile_;
};

/// If each sibling that took one frame earned another wait of a millisecond, 3,000 frames would
/// take minutes.
TEST_F(SiblingNeighbours, AReceiverThatTakesFramesSlowlyDelaysNoNeighbour) {
  auto last = util::monotonic_now();
  exchange(3000, [&](std::uint32_t sent) {
    if (sender_->link().room(kTurn) != 0) sender_->send(hostile_->mac(), sent);
    // As slowly as possible without counting as stalled.
    if (const auto now = util::monotonic_now(); now - last > hub::Patience::kLongest - 10ms) {
      last = now;
      hostile_->turn(1);
    }
  });
}

TEST_F(SiblingNeighbours, NotesOfAGuestInTheNameOfItsServerMakeNoLink) {
  // The guest's server joins, but does not offer links.
  auto joined = join();
  fabric::Switch network;
  const auto guest = network.create_port("guest");
  const auto from = wire::MacAddress::from(std::as_bytes(std::span(joined.mac)));
  fabric::RingPort server(network.create_port("hub"), *std::move(joined.out),
                          *std::move(joined.in));
  std::uint64_t told = 0;
  exchange(200, [&](std::uint32_t) {
    for (unsigned kind = 0; kind != 8; ++kind) {
      for (const auto& to : {from, sender_->mac(), receiver_->mac()}) {
        guest->transmit(
            hub::LinkNote{.to = to, .from = from, .kind = static_cast<hub::LinkNote::Kind>(kind)}
                .frame());
      }
    }
    network.deliver(kAll);
    if (server.settle()) {
      const std::uint64_t one = 1;
      (void)!::write(joined.wake_hub.get(), &one, sizeof one);
    }
    server.receive(kAll);
    char byte;
    told += ::recv(joined.socket.get(), &byte, 1, MSG_DONTWAIT) > 0 ? 1 : 0;
  });
  EXPECT_EQ(told, 0u) << "its server is told of links";
  EXPECT_LE(sender_->link().links(), 1u) << "one with the receiver";
}

TEST_F(SiblingNeighbours, AProgramThatSpeaksForOthersIsIgnored) {
  exchange(500, [&](std::uint32_t) {
    using Kind = hub::LinkNote::Kind;
    for (const auto kind : {Kind::kIntroduced, Kind::kReady, Kind::kSwitched, Kind::kGone}) {
      hostile_->transmit(
          hub::LinkNote{.to = sender_->mac(), .from = receiver_->mac(), .kind = kind}.frame());
      hostile_->transmit(
          hub::LinkNote{.to = receiver_->mac(), .from = hostile_->mac(), .kind = kind}.frame());
    }
    hostile_->turn();
  });
}

TEST_F(SiblingNeighbours, AProgramThatTalksOnItsSocketIsPutOutAlone) {
  exchange(200, [&](std::uint32_t sent) {
    if (sent == 100) (void)::send(hostile_->socket(), "words", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

}  // namespace
}  // namespace softhca::neighbours

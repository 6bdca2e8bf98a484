// Switch::deliver_front_fast and forward_fast must do what deliver_front and forward do. A switch
// whose cached flows are dropped before each frame takes only the slow paths.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabric/switch.h"
#include "recorder.h"
#include "wire/ib_header.h"

namespace softhca::fabric {
namespace {

constexpr unsigned kPorts = 4;
constexpr std::uint64_t kToAll = 0xffffffffffff;
constexpr std::uint64_t kMulticast = 0x01005e000001;
/// Station i is usually on port i; the last one sends nothing.
constexpr std::array<std::uint64_t, kPorts + 1> kStations{kA, kB, 0x020000000003, 0x020000000004,
                                                          0x020000000005};

/// One random event.
struct Step {
  enum class Kind { kFrame, kPathFrame, kShortFrame, kLoopBack, kReceiver, kReplacePort };

  Kind kind = Kind::kFrame;
  unsigned port = 0;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  bool in_place = false;  ///< the frame is built in Port::draft()
  unsigned deliver = 0;   ///< frames to deliver afterwards
};

Step random_step(std::mt19937& random, Step last) {
  // Usually another frame of the same flow, as the cache needs it.
  if (random() % 4 == 0) {
    last.port = random() % kPorts;
    last.source = random() % 16 == 0 ? kStations[random() % kPorts] : kStations[last.port];
    const auto to = random() % 12;
    last.destination = to == 0   ? kToAll
                       : to == 1 ? kMulticast
                                 : kStations[random() % kStations.size()];
  }
  last.kind = Step::Kind::kFrame;
  if (random() % 3 == 0) last.kind = Step::Kind::kPathFrame;
  const auto seldom = random() % 64;
  if (seldom == 0) last.kind = Step::Kind::kShortFrame;
  if (seldom == 1) last.kind = Step::Kind::kLoopBack;
  if (seldom == 2) last.kind = Step::Kind::kReceiver;
  if (seldom == 3) last.kind = Step::Kind::kReplacePort;
  last.in_place = random() % 3 != 0;
  last.deliver = random() % 4;
  return last;
}

class Network {
 public:
  explicit Network(bool caches) : caches_(caches) {
    for (unsigned i = 0; i != kPorts; ++i) connect(i);
  }

  void play(const Step& step, const wire::IbHeader& path, std::string_view text) {
    auto& port = *ports_[step.port];
    switch (step.kind) {
      case Step::Kind::kFrame:
        send(step, frame_of(step.destination, step.source, text));
        break;
      case Step::Kind::kPathFrame: {
        wire::Frame frame;
        path.begin(wire::Opcode::RC_SEND_ONLY, 0, step.in_place ? port.draft() : frame);
        port.transmit(step.in_place ? port.draft() : frame);
        break;
      }
      case Step::Kind::kShortFrame: {
        wire::Frame frame;
        std::ranges::fill(frame.resize_head(13), std::byte{2});
        send(step, frame);
        break;
      }
      case Step::Kind::kLoopBack:
        port.loop_back(frame_of(step.destination, step.source, text), 5);
        break;
      case Step::Kind::kReceiver:
        receives_[step.port] = !receives_[step.port];
        port.set_receiver(receives_[step.port] ? &receivers_[step.port] : nullptr);
        break;
      case Step::Kind::kReplacePort:
        ports_[step.port] = nullptr;
        connect(step.port);
        break;
    }
    deliver(step.deliver);
  }
  void deliver(unsigned frames) {
    if (caches_) {
      switch_.deliver(frames);
      return;
    }
    for (; frames != 0; --frames) {
      switch_.invalidate_flows();
      switch_.deliver(1);
    }
  }

  /// Everything that arrived at this port since the last call.
  std::vector<std::string> take(unsigned port) {
    auto& receiver = receivers_[port];
    auto all = std::exchange(receiver.texts, {});
    all.push_back("looped:");
    for (auto& text : std::exchange(receiver.looped, {})) all.push_back(std::move(text));
    return all;
  }
  /// The counters, and the last released frame of each port.
  std::vector<std::uint64_t> counts() const {
    const auto& counters = switch_.counters();
    std::vector counts{counters.delivered,           counters.flooded,
                       counters.looped_back,         counters.filtered,
                       counters.dropped_no_receiver, counters.dropped_malformed,
                       counters.dropped_port_gone};
    for (const auto& port : ports_) counts.push_back(port->released());
    return counts;
  }

 private:
  void connect(unsigned number) {
    ports_[number] = switch_.create_port(std::to_string(number));
    ports_[number]->set_receiver(&receivers_[number]);
    receives_[number] = true;
  }
  void send(const Step& step, const wire::Frame& frame) {
    auto& port = *ports_[step.port];
    if (!step.in_place) {
      port.transmit(frame);
      return;
    }
    auto& draft = port.draft();
    draft = frame;
    port.transmit(draft);
  }

  const bool caches_;
  Switch switch_{{.queue_frames_max = 1000, .macs_max = 64}};
  std::array<Recorder, kPorts> receivers_;
  std::array<bool, kPorts> receives_{};
  std::array<std::unique_ptr<Port>, kPorts> ports_;
};

wire::IbHeader path_of(const Step& step) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(step.source);
  address.destination_mac = wire::MacAddress::from_u64(step.destination);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  return wire::IbHeader(address);
}

// IEEE 802.1Q 8.6: where a frame goes depends on it and on what was learned, not on the frame
// before it.
TEST(FlowCache, FramesGoWhereTheSlowPathSendsThem) {
  constexpr std::array<std::string_view, 3> kTexts{"one", "and another", "the third of these"};
  std::mt19937 random(1);
  Network fast(true);
  Network slow(false);
  Step step{.source = kA, .destination = kB};
  auto path = path_of(step);
  for (int i = 0; i != 20'000; ++i) {
    const auto next = random_step(random, step);
    if (next.source != step.source || next.destination != step.destination) path = path_of(next);
    step = next;
    const auto text = kTexts[random() % kTexts.size()];
    fast.play(step, path, text);
    slow.play(step, path, text);
    ASSERT_EQ(fast.counts(), slow.counts()) << i;
    for (unsigned port = 0; port != kPorts; ++port) {
      ASSERT_EQ(fast.take(port), slow.take(port)) << i << ", port " << port;
    }
    if (i % 64 == 0) {
      fast.deliver(1000);
      slow.deliver(1000);
    }
  }
}

}  // namespace
}  // namespace softhca::fabric

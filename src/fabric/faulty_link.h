// A link that fails as the rules of NetworkFaults say: a port in front of another.
//
// Frames that the device sends and receives are tested against the rules. Frames that it sends to
// itself cross no link. Without a rule for this port, sent frames take one test more, and received
// ones none. With one, trains are split into packets.
//
// Time enters by handle_timeout(), which must be called no later than next_event() says. The same
// rules, frames and times give the same result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/frame_facts.h"
#include "fabric/held_frames.h"
#include "fabric/network_faults.h"
#include "fabric/passing_port.h"

namespace softhca::fabric {

class FaultyLink final : public PassingPort, private NetworkFaults::Observer {
 public:
  /// Bytes that wait for a limit without queue=.
  static constexpr std::uint64_t kQueue = 256 << 10;
  /// Most frames that have waited and go on with another one. If more could, it waits behind them.
  static constexpr std::size_t kReleasedPerFrame = 4;
  /// Most frames that go out when one is sent.
  static constexpr std::size_t kFramesPerPacket = 2 + 3 * kReleasedPerFrame;
  /// Longest wait of a reordered frame for others to pass.
  static constexpr util::Duration kReorderHold = std::chrono::microseconds(100);

  /// `name`: what port= of a rule calls it. `number`: links of one rule with different numbers draw
  /// different random numbers. `link`: while an InfiniBand link is down, the port below has no
  /// receiver, so that the subnet sees it, too. @pre `below` and `faults` outlive this
  FaultyLink(Port& below, NetworkFaults& faults, std::string name, std::uint64_t number,
             wire::Link link = wire::Link::kEthernet);
  ~FaultyLink() override;
  FaultyLink(const FaultyLink&) = delete;
  FaultyLink& operator=(const FaultyLink&) = delete;

  std::uint64_t transmit(const wire::Frame& frame) override;
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return last_ = below().loop_back(frame, mark);
  }
  void set_receiver(Receiver* receiver) override;
  bool link_up() const override { return PassingPort::link_up() && (!active_ || !is_down()); }

  /// Sends and delivers frames whose time has come, at most so many; has_due() says whether there
  /// are more. Receivers may transmit, so the owner lets the port below deliver before a device
  /// runs.
  void handle_timeout(util::Time now, std::size_t sent_max = SIZE_MAX,
                      std::size_t delivered_max = SIZE_MAX);
  /// Most frames that go out with one packet that is sent now: its duplicate, and frames that have
  /// waited.
  std::size_t frames_per_packet() const { return may_add_ ? kFramesPerPacket : 1; }
  /// When handle_timeout() has something to do.
  util::Time next_event() const;
  /// True if handle_timeout() has frames to send or deliver now.
  bool has_due() const { return active_ && next_frame() <= faults_.now(); }

 private:
  /// One direction.
  struct Lane {
    HeldFrames held = {};
    util::Time paused_until{util::Time::min()};
    unsigned paused_by = 0;
  };
  /// A rule for this port.
  struct Rule {
    NetworkFaults::Entry* entry;
    std::uint64_t random;                       ///< state of its random numbers
    std::array<util::Time, 2> last_due = {};    ///< of delay, by direction
    std::array<util::Time, 2> busy_until = {};  ///< of limit, by direction
    util::Time next_busy = {};                  ///< the same if the current frame waits
    std::optional<util::Time> down_since = std::nullopt;
    std::uint64_t flaps = 0;  ///< further times that the link went down

    const FaultRule& rule() const { return entry->rule; }
    NetworkFaults::Id id() const { return entry->id; }
  };
  struct Fate {
    bool lost = false;
    bool duplicate = false;
    util::Time due{util::Time::min()};
    unsigned passes = 0;
    Rule* holder = nullptr;  ///< null: it does not wait
  };

  void handle_rules() override;
  void arrive(const wire::Frame& frame, Receiver& to) override;
  void take_path();
  void attach();
  void follow_state();

  Lane& lane(Direction direction) { return lanes_[direction == Direction::kRx ? 1 : 0]; }
  void pass(Direction direction, const wire::Frame& packet);
  void take_room(Direction direction);
  void send(Direction direction, const wire::Frame& frame, const Fate& fate, util::Time now);
  void forward(Direction direction, const wire::Frame& frame, util::Time now);
  void release_due(Direction direction, util::Time now, std::size_t most);
  Fate decide(Direction direction, wire::Frame& frame, util::Time now);
  bool fires(Rule& state, util::Time now);
  void apply(Rule& state, Direction direction, wire::Frame& frame, const FrameFacts& facts,
             util::Time now, Fate& fate);
  void apply_delay(Rule& state, Direction direction, util::Time now, Fate& fate);
  void apply_limit(Rule& state, Direction direction, const wire::Frame& frame, util::Time now,
                   Fate& fate);
  bool apply_mark(const Rule& state, Direction direction, wire::Frame& frame,
                  const FrameFacts& facts, util::Time now) const;
  bool take_down(Rule& state, util::Time now);
  void count_flaps(util::Time now);
  /// The rule by which the link is down; null: it is up.
  const Rule* down_by(util::Time now) const;
  bool is_down() const { return down_by(faults_.now()) != nullptr; }
  util::Time next_frame() const;

  NetworkFaults& faults_;
  const std::string name_;
  const std::uint64_t number_;
  const bool unplugs_;  ///< the port below has no receiver while the link is down
  bool plugged_ = true;
  Receiver* receiver_ = nullptr;
  std::vector<Rule> rules_;
  std::array<Lane, 2> lanes_;
  std::uint64_t last_ = 0;  ///< number of the last frame that was passed on
  bool active_ = false;     ///< there are rules, or frames that wait
  bool may_add_ = false;    ///< a rule holds frames or makes more of them, or frames wait
};

}  // namespace softhca::fabric

// A small subnet manager (IBTA 14.4), which lives in a switch: it asks each port of the switch who
// is behind it, by directed route, gives it a LID and what else a port needs, and makes the link
// active. Now and then it looks whether each is still so (IBTA 14.4.4).
//
// It knows one switch and what is plugged into it; LIDs are those of the switch's ports.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "subnet/agent.h"
#include "util/clock.h"

namespace softhca::subnet {

class Manager {
 public:
  /// What is known of a node behind a port.
  struct Node {
    bool up = false;          ///< its link is active
    std::uint8_t port = 0;    ///< of the switch
    std::uint8_t number = 0;  ///< of the node's own port
    Lid lid;
    std::uint64_t port_guid = 0;
    std::array<std::byte, spec::infiniband::node_info::kSize> info{};
    std::array<std::byte, 64> description{};
    std::array<std::byte, PortInfo::kSize> port_info{};  ///< as it was last answered
  };

  /// `own`: the agent of the switch. `send`: an SMP by directed route, out of this port of it.
  Manager(Agent& own, std::function<void(std::uint8_t, const Mad&)> send);

  /// LID of the switch, and so of the manager.
  static constexpr Lid kOwnLid{1};
  static constexpr Lid lid_of(std::uint8_t port) {
    return Lid(static_cast<std::uint16_t>(kOwnLid.value() + port));
  }

  void handle_link(std::uint8_t port, bool up);
  /// A response that came in by `port`.
  void handle_response(std::uint8_t port, const Mad& mad);
  /// From one sweep to the next, as opensm has it.
  static constexpr util::Duration kSweepInterval = std::chrono::seconds(10);
  /// Sends again what nobody answers, and sweeps. Returns when to call again.
  util::Time run(util::Time now);

  /// Null: nobody is there, or not yet.
  const Node* find(Lid lid) const;
  const Node* find(std::uint64_t port_guid) const;
  std::size_t count() const;

  /// A Set of the switch's own attributes.
  void set_own(spec::infiniband::sm_attribute attribute, std::uint32_t modifier,
               const std::function<void(std::span<std::byte, 64>)>& change);

  struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t repeated = 0;
    std::uint64_t refused = 0;     ///< responses with a status
    std::uint64_t unexpected = 0;  ///< responses that nobody waits for
    std::uint64_t swept = 0;       ///< links that were looked at again
    std::uint64_t mended = 0;      ///< of those, links that were not as they had been made
  };
  const Counters& counters() const { return counters_; }

 private:
  /// What is asked of a node, in this order.
  enum class Step : std::uint8_t {
    kNodeInfo,
    kNodeDescription,
    kGetPortInfo,
    kGuidInfo,
    kPkeys,
    kLanes,
    kArbitrationLow,
    kArbitrationHigh,
    kAttributes,
    kArm,
    kActivate,
    kDone,
    kSweep,
    kGivenUp,
  };
  struct Link {
    Node node;
    Step step = Step::kDone;
    bool there = false;
    unsigned tries = 0;
    std::uint64_t transaction = 0;
    util::Time deadline = util::kNever;
  };

  void begin(Link& link);
  void next(Link& link);
  void ask(Link& link);
  void fill(const Link& link, Mad& mad) const;
  bool take(Link& link, const Mad& mad);
  void finish_sweep(Link& link);
  void handle_deadline(Link& link);
  static util::Duration patience_at(Step step);
  void set_state(const Link& link, PortState state);
  void forward(const Node& node, bool there);

  Agent& own_;
  const std::function<void(std::uint8_t, const Mad&)> send_;
  std::vector<Link> links_;  ///< by port of the switch
  std::uint64_t transactions_ = 0;
  Counters counters_;
};

}  // namespace softhca::subnet

// A small subnet manager (IBTA 14.4) inside a switch. It discovers the node behind each port by
// directed route, assigns a LID and the port's other attributes, and activates the link. A periodic
// sweep checks that each link is still configured so (IBTA 14.4.4).
//
// It knows one switch and the nodes plugged into it. LIDs follow the port numbers of the switch.
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
  /// A node behind a port, as the manager discovered it.
  struct Node {
    bool up = false;          ///< its link is active
    std::uint8_t port = 0;    ///< port of the switch
    std::uint8_t number = 0;  ///< the node's own port number
    Lid lid;
    std::uint64_t port_guid = 0;
    std::array<std::byte, spec::infiniband::node_info::kSize> info{};
    std::array<std::byte, 64> description{};
    std::array<std::byte, PortInfo::kSize> port_info{};  ///< from its last response
  };

  /// `own`: the agent of the switch. `send`: transmits an SMP by directed route, out of the given
  /// port of the switch.
  Manager(Agent& own, std::function<void(std::uint8_t, const Mad&)> send);

  /// LID of the switch and of the manager.
  static constexpr Lid kOwnLid{1};
  static constexpr Lid lid_of(std::uint8_t port) {
    return Lid(static_cast<std::uint16_t>(kOwnLid.value() + port));
  }

  void handle_link(std::uint8_t port, bool up);
  /// Takes a response that arrived by `port`.
  void handle_response(std::uint8_t port, const Mad& mad);
  /// Time between two sweeps, as in opensm.
  static constexpr util::Duration kSweepInterval = std::chrono::seconds(10);
  /// Retransmits unanswered requests, and sweeps. Returns when to call again.
  util::Time run(util::Time now);

  /// Null if no node is there, or its link is not active yet.
  const Node* find(Lid lid) const;
  const Node* find(std::uint64_t port_guid) const;
  std::size_t count() const;

  /// Changes an attribute of the switch itself by a Set.
  void set_own(spec::infiniband::sm_attribute attribute, std::uint32_t modifier,
               const std::function<void(std::span<std::byte, 64>)>& change);

  struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t repeated = 0;
    std::uint64_t refused = 0;     ///< responses with a status
    std::uint64_t unexpected = 0;  ///< responses without a pending request
    std::uint64_t swept = 0;       ///< links checked by a sweep
    std::uint64_t mended = 0;      ///< links that a sweep found changed and configured again
  };
  const Counters& counters() const { return counters_; }

 private:
  /// The requests to a node, in this order.
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
  void give_up(Link& link);
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

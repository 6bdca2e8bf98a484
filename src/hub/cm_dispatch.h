// Several processes share one IP address, and so its QP1: finds the process that a communication
// manager's message is for. It does no I/O.
//
// - A request (REQ, SIDR_REQ) goes to the process that listens on its service ID, at the address
//   that the request was sent to. A listener of that address precedes one of all addresses.
// - Any other message has the number of its receiver's connection. The upper 8 bits are the block
//   of the process, as those of its QP numbers are.
// - A message that no process expects, but that a host would answer, goes to the process that has
//   the address for longest. Its communication manager then refuses the request, or confirms the
//   disconnection.
//
// Peers and processes are not trusted: all tables are bounded, and so is what a peer may send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "hub/cm_message.h"
#include "hub/peer_rates.h"
#include "hub/roce_blocks.h"
#include "util/clock.h"
#include "wire/gid.h"

namespace softhca::hub {

/// A service ID, and the addresses at which a process listens on it.
struct CmService {
  std::uint64_t id = 0;
  wire::Gid address;  ///< of the machine, or one of those below

  static wire::Gid all() { return {}; }
  static wire::Gid all_ipv4() { return wire::Gid::from_ipv4(0); }
  /// ::1, which no device has.
  static wire::Gid all_ipv6() {
    wire::Gid gid;
    gid.bytes.back() = std::byte{1};
    return gid;
  }

  friend auto operator<=>(const CmService&, const CmService&) = default;
};

class CmDispatch {
 public:
  /// Living listeners of one process.
  static constexpr std::size_t kListenersMax = 1024;

  struct Options {
    std::size_t listeners_max = kListenersMax;
    std::size_t requests_max = 4096;  ///< requests whose process is remembered
    /// Many ranks of a job on one machine connect to many on another together.
    PeerRates::Options rate{.burst = 16384, .per_second = 16384};
    /// For messages that no process expects.
    PeerRates::Options unexpected_rate{.burst = 64, .per_second = 64};
    /// Processes that `catch_up` is called with for requests that no process listens to. One rate
    /// for all sources, because sources can be forged.
    PeerRates::Options catch_up_rate{.burst = 32768, .per_second = 32768};
    /// Called before a new request goes to a listener, with its process alone, and before it goes
    /// to a process that does not listen, with all: may call listen() and unlisten() for what these
    /// have registered meanwhile. May be empty.
    std::function<void(std::span<const RoceBlock> members)> catch_up = {};
  };
  struct Counters {
    std::uint64_t forwarded = 0;   ///< messages that route() has given to a process
    std::uint64_t duplicates = 0;  ///< of these, requests that were there before
    std::uint64_t unexpected = 0;  ///< of these, messages that no process expects
    std::uint64_t malformed = 0;   ///< not a message of a communication manager
    std::uint64_t unknown = 0;     ///< for a number that no process has
    std::uint64_t over_rate = 0;   ///< a peer sends too many
    std::uint64_t unread = 0;      ///< requests beyond `catch_up_rate`: dropped, peers repeat them
    std::uint64_t refused = 0;     ///< calls of listen() that failed
  };
  /// How long requests for a service ID still go to the process that listened last. perftest's -R
  /// closes its listener and opens the next, while its client connects.
  static constexpr util::Duration kListensAgain = std::chrono::seconds(3);
  /// How long the process of a request is remembered: longer than any peer repeats it.
  static constexpr util::Duration kRemembered = std::chrono::seconds(120);

  CmDispatch() : CmDispatch(Options{}) {}
  explicit CmDispatch(Options options)
      : options_(std::move(options)),
        rates_(options_.rate),
        unexpected_rates_(options_.unexpected_rate),
        catch_up_rate_(options_.catch_up_rate) {}

  /// From now on requests for `service` go to the process, unless another one listens there too:
  /// then they go to the first, until it no longer does. Processes do not wait for each other's
  /// messages to the hub, so the next listener's may arrive before the end of the last. False: the
  /// process has too many listeners.
  bool listen(RoceBlock block, const CmService& service, util::Time now);
  /// No effect if the process does not listen there.
  void unlisten(RoceBlock block, const CmService& service, util::Time now);
  /// The process has left.
  void forget(RoceBlock block);

  /// The addresses of a message.
  struct Ends {
    wire::Gid from;  ///< the peer
    wire::Gid to;
    /// The process that has sent it, if others share the address `from` with it. 0: none.
    unsigned sender = 0;
  };
  /// `packet`: from the BTH to the ICRC. `members`: the processes that have the address that it was
  /// sent to, the oldest first. Nothing: drop it.
  std::optional<RoceBlock> route(const Ends& ends, std::span<const std::byte> packet,
                                 std::span<const RoceBlock> members, util::Time now);

  const Counters& counters() const { return counters_; }
  std::size_t listeners() const { return listeners_.size(); }
  std::size_t requests() const { return requests_.size(); }

 private:
  struct ListenerKey {
    CmService service;
    RoceBlock block = 0;
    friend auto operator<=>(const ListenerKey&, const ListenerKey&) = default;
  };
  struct Listener {
    std::uint64_t since = 0;          ///< order of the calls of listen()
    util::Time until = util::kNever;  ///< kNever: it listens; else how long it may listen again
  };
  /// A peer's number of a request.
  struct RequestKey {
    wire::Gid from;
    std::uint32_t number = 0;
    bool datagram = false;
    friend auto operator<=>(const RequestKey&, const RequestKey&) = default;
  };
  struct Request {
    std::uint64_t service = 0;
    RoceBlock block = 0;
    util::Time until{};
  };
  /// Where a message goes, and whether its process expects it.
  struct Target {
    RoceBlock block = 0;  ///< 0: nowhere
    bool expected = true;
    bool duplicate = false;
    bool listens = false;  ///< a new request, to a process that listens as far as is known
  };
  using Members = std::span<const RoceBlock>;

  Target find(const Ends& ends, const CmMessage& message, Members members, util::Time now);
  Target find_request_target(const Ends& ends, const CmMessage& message, Members members,
                             util::Time now);
  bool catch_up(const Ends& ends, const CmMessage& message, Members members, util::Time now,
                Target& target);
  Target find_listener(std::uint64_t id, const wire::Gid& to, Members members,
                       util::Time now) const;
  RoceBlock find_listener(const CmService& service, Members members, util::Time now,
                          bool lives) const;
  const Request* find_request(const RequestKey& key, util::Time now) const;
  void remember(const RequestKey& key, const Request& request);
  void drop_ended(RoceBlock block);

  const Options options_;
  std::map<ListenerKey, Listener> listeners_;
  std::map<RoceBlock, std::set<CmService>> services_of_;  ///< the keys of listeners_
  std::uint64_t listens_ = 0;
  std::map<RequestKey, Request> requests_;
  std::deque<RequestKey> request_order_;  ///< the keys of requests_, the oldest first
  PeerRates rates_;
  PeerRates unexpected_rates_;
  PeerRates catch_up_rate_;  ///< one bucket for all
  Counters counters_;
};

}  // namespace softhca::hub

// The addresses of the machine that a process shares with others (station.h), as the process sees
// them: what it asks of the hub, and the hub's answers. This code runs inside arbitrary programs:
// it makes no call that blocks, except share().
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "hub/cm_dispatch.h"
#include "hub/join.h"
#include "hub/request.h"
#include "os/unique_fd.h"
#include "util/result.h"
#include "util/time_source.h"
#include "wire/gid.h"

namespace softhca::hub {

/// The place of a process that shares addresses.
struct Sharing {
  RoceBlock block = 0;   ///< the upper 8 bits of its QP numbers and communication IDs; never 0
  unsigned station = 0;  ///< number of the station of shared addresses
};
/// Asks the hub for a block. Call it before an Uplink has the process's place on the hub. Fails
/// with the reason, and what the user can do.
util::Result<Sharing> share(const Joined& joined);

class SharedAddresses {
 public:
  /// A refused address is asked for again after this time, then after twice as long, and so on.
  static constexpr util::Duration kFirstPause = std::chrono::seconds(1);
  static constexpr util::Duration kLongestPause = std::chrono::seconds(32);

  SharedAddresses(const Sharing& sharing, util::TimeSource clock)
      : sharing_(sharing), clock_(std::move(clock)) {}

  const Sharing& sharing() const { return sharing_; }

  /// Asks for the sockets of these addresses, and leaves all others.
  void set_addresses(std::span<const wire::Gid> addresses);
  /// The socket of an address, once: nonblocking, and bound to the address and UDP port 4791. It
  /// receives RoCEv2 packets for QPs of the block; those to QP1 come through the ring
  /// (forwarded_datagram.h). Invalid: the hub has not answered yet. The error has the reason, and
  /// what the user can do.
  util::Result<UniqueFd> take_socket(const wire::Gid& address);
  /// Registers a listener, so that the hub forwards its requests to this process, until as many
  /// calls of unlisten(). False: there are too many.
  bool listen(const CmService& service);
  void unlisten(const CmService& service);
  /// Services with listeners.
  std::size_t listeners() const { return listeners_.size(); }

  // For the Uplink.
  /// Sends what the hub does not know yet, as far as the socket takes it.
  void send_requests(int socket) {
    if (has_requests_) has_requests_ = !send_all(socket);
  }
  /// An answer to the first address that was asked for and not answered yet.
  void handle_answer(const RoceAnswer& answer, UniqueFd socket);
  bool awaits_answers() const { return !asked_.empty(); }
  /// Whether an answer has come since the last call.
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  enum class State : std::uint8_t { kNew, kAsked, kGranted, kRefused };
  struct Place {
    State state = State::kNew;
    bool is_wanted = true;
    UniqueFd socket;
    std::string reason;  ///< kRefused
    util::Time again{};  ///< kRefused: when to ask again
    util::Duration pause = kFirstPause;
  };

  bool send_all(int socket);
  bool send_listeners(int socket);
  bool send_place(int socket, const wire::Gid& address, Place& place);

  const Sharing sharing_;
  const util::TimeSource clock_;
  std::map<wire::Gid, Place> places_;
  std::deque<wire::Gid> asked_;              ///< those that await an answer, in order
  std::map<CmService, unsigned> listeners_;  ///< with the number of listeners
  std::set<CmService> reported_;             ///< listeners that the hub knows
  bool has_requests_ = false;
  bool has_news_ = false;
};

}  // namespace softhca::hub

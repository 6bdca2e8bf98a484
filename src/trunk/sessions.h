// The sessions of a hub with all others: begins them as joiner and as listener, keeps them alive,
// and ends them. It has no socket: datagrams and times are its caller's.
//
// A sender without the key costs one tag of a short datagram, and is answered by less than it sent,
// a few times a second. It makes the listener store nothing.
//
// Two hubs that join each other have two sessions. They send by the one whose joiner has the lower
// number, and receive by both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trunk/handshake.h"
#include "trunk/session.h"
#include "util/inspect.h"
#include "util/log.h"

namespace softhca::trunk {

/// A hub to join.
struct Target {
  std::string name;  ///< as the user has written it
  Address address;
};

class Sessions {
 public:
  static constexpr std::size_t kHubsMax = 64;
  /// Sessions that a joiner has not confirmed yet, for kPendingLife at most.
  static constexpr std::size_t kPendingMax = 16;
  static constexpr util::Duration kPendingLife = std::chrono::seconds(5);

  struct Events {
    /// `peer` begins or ends, or its processes have changed.
    std::function<void(std::size_t peer)> change;
    /// A frame came from `peer`; valid during the call.
    std::function<void(std::size_t peer, std::span<const std::byte> frame)> frame;
  };
  struct Counters {
    std::uint64_t refused_key = 0;  ///< first messages with another key
    std::uint64_t refused = 0;      ///< for other reasons
    std::uint64_t strange = 0;      ///< datagrams of no session
    std::uint64_t unsent = 0;       ///< datagrams that the socket refused
  };

  /// `own`: the processes of this hub. `out`, `clock` and `own` must outlive it.
  Sessions(const Identity& identity, std::vector<Target> targets, const Members& own, Out& out,
           const util::TimeSource& clock);

  void set_events(Events events) { events_ = std::move(events); }
  void handle_datagram(const Address& from, std::span<const std::byte> datagram);
  /// Does what is due. next(): when it must be called.
  void tick();
  util::Time next() const;
  /// Sends what the sessions have collected.
  void settle();
  /// Sends the processes of this hub to all others.
  void send_members();
  void say_goodbye();

  /// A datagram could not be sent to this address.
  void note_send_error(const Address& to, int error);

  /// Peers have indexes below end(); an index may be unused. Null: it is.
  std::size_t end() const { return peers_.size(); }
  Session* find(std::size_t peer) const;
  /// Whether frames are sent by this session, and not by another with the same hub.
  bool is_preferred(std::size_t peer) const;

  /// Sessions that a joiner has not confirmed yet.
  std::size_t pending() const { return pending_.size(); }

  /// Whether every hub to join has answered.
  bool all_answered() const;
  /// Hubs to join that have not answered, in words; empty: there are none.
  std::string silent() const;
  /// Why a hub to join refuses; empty: none does.
  std::string refusal() const;
  void inspect(util::InspectNode& node) const;
  const Counters& counters() const { return counters_; }

 private:
  struct Pending {
    Nonce joiner{};
    util::Time until{};
    std::vector<std::byte> welcome;
    std::unique_ptr<Session> session;
  };
  struct Attempt {
    Target target;
    Joiner joiner;
    util::Time next{};
    util::Duration pause{};
    bool fresh = true;
    std::optional<Refusal> refused = std::nullopt;
    int error = 0;  ///< the last one of the socket, an errno
  };

  // sessions.cc
  void handle_session(const Address& from, const Head& head, std::span<const std::byte> datagram);
  Session* session_of(const Address& from, const Head& head, std::span<const std::byte> datagram,
                      std::size_t& peer);
  std::size_t open(std::unique_ptr<Session> session);
  void close(std::size_t peer);
  bool has_session_with(const Address& address) const;
  bool leave_if_taken(Session& session);
  void log(util::LogLevel level, const std::string& text);
  Blocks own_blocks() const;
  Blocks blocks_of_others(std::uint64_t hub, const Address& at) const;
  std::unique_ptr<Session> make_session(std::uint64_t hub, const Address& at, bool is_joiner,
                                        const Session::Keys& keys, const Blocks& blocks);
  // beginnings.cc
  void handle_hello(const Address& from, const Head& head, std::span<const std::byte> datagram);
  std::optional<Refusal> why_refused(const Address& from, const Head& head,
                                     const Hello& hello) const;
  void welcome(const Address& from, const Head& head, const Hello& hello);
  void refuse(const Address& to, const Nonce& nonce, Refusal why);
  void handle_answer(const Address& from, const Head& head, std::span<const std::byte> datagram);
  void take_welcome(Attempt& attempt, const Head& head, std::span<const std::byte> datagram);
  void note_refusal(Attempt& attempt, Refusal why);
  void send_hello(Attempt& attempt);

  const Identity identity_;
  const Members& own_;
  Out& out_;
  const util::TimeSource& clock_;
  Events events_;
  Cookies cookies_;
  std::vector<Attempt> attempts_;
  std::vector<std::unique_ptr<Session>> peers_;
  std::vector<Pending> pending_;
  Draft draft_;
  util::RateLimiter answers_{20, std::chrono::seconds(1)};
  util::RateLimiter lines_{20, std::chrono::seconds(10)};  ///< of the log: others cause them
  Counters counters_;
};

/// Why a hub refuses, in words.
std::string to_words(Refusal why);

}  // namespace softhca::trunk

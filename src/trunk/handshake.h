// The two ends of the exchange that begins a session (datagram.h), without socket and timer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trunk/address.h"
#include "trunk/datagram.h"
#include "trunk/session.h"
#include "util/clock.h"

namespace softhca::trunk {

/// Cookies of a listener. A joiner that returns one receives at its address. Cookies follow from
/// the address, so the listener stores none.
class Cookies {
 public:
  /// A cookie is valid for at least this long, and for at most twice as long.
  static constexpr util::Duration kLife = std::chrono::seconds(30);

  explicit Cookies(util::Time now) : made_(now) {}

  Tag make(const Address& of, const Head& head, const Nonce& nonce, util::Time now);
  bool is_valid(const Tag& cookie, const Address& of, const Head& head, const Nonce& nonce,
                util::Time now);

 private:
  void renew(util::Time now);

  Key key_ = random_key();
  Key key_before_ = random_key();
  util::Time made_;
};

/// The identity of a hub, for all others.
struct Identity {
  std::uint64_t fabric = 0;
  std::uint64_t id = 0;  ///< random: a hub that is started again is another one
  Key key{};             ///< of the fabric
  Key hello_key{};       ///< of the first messages
};
/// The identity of a new hub.
Identity make_identity(const Key& key, std::uint64_t fabric);

/// The keys of a session, from the view of the joiner or of the listener.
Session::Keys session_keys(const Identity& own, bool is_joiner, std::uint64_t peer,
                           const Nonce& joiner, const Nonce& listener);

/// The joiner's end.
class Joiner {
 public:
  explicit Joiner(const Identity& own) : own_(own) {}

  /// Writes the next kHello. `fresh`: a new attempt, with a new nonce.
  void hello(Draft& draft, const Blocks& blocks, bool fresh);
  /// Takes a kChallenge. True: send hello() again.
  bool take_challenge(std::span<const std::byte> datagram);
  /// Takes a kWelcome, which is the answer to the last hello.
  struct Begun {
    std::uint64_t peer = 0;
    Session::Keys keys;
    Blocks blocks;  ///< of the listener
  };
  std::optional<Begun> take_welcome(const Head& head, std::span<const std::byte> datagram);
  /// Takes a kRefuse. It may be forged, by a sender who has seen the hello.
  std::optional<Refusal> take_refusal(std::span<const std::byte> datagram) const;

 private:
  bool is_ours(std::span<const std::byte> body) const;

  const Identity& own_;
  Nonce nonce_{};
  Tag cookie_{};
};

}  // namespace softhca::trunk

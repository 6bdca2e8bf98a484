// A session with one hub: frames, the hub's processes, and whether it lives. Its time is the
// caller's: it has no socket and no thread.
//
// A session ends with kGoodbye, or when no padded kMembers has come for kSilence. A new one begins
// with new keys, so nothing of an earlier session is valid in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "trunk/address.h"
#include "trunk/datagram.h"
#include "trunk/flight.h"
#include "trunk/path_mtu.h"
#include "trunk/reassembly.h"
#include "trunk/replay_window.h"
#include "util/time_source.h"
#include "wire/frame.h"

namespace softhca::trunk {

class Session {
 public:
  /// kMembers is sent so often.
  static constexpr util::Duration kAlive = std::chrono::seconds(1);
  static constexpr util::Duration kAgain = std::chrono::milliseconds(50);
  static constexpr util::Duration kSilence = std::chrono::seconds(5);

  struct Ends {
    std::uint64_t fabric = 0;
    std::uint64_t own = 0;   ///< this hub
    std::uint64_t peer = 0;  ///< the other hub
    Address address;         ///< of the other hub
    bool is_joiner = false;  ///< this hub began the session
  };
  struct Keys {
    Key out;
    Key in;
  };
  struct Counters {
    std::uint64_t frames_sent = 0;
    std::uint64_t frames_received = 0;
    std::uint64_t datagrams_sent = 0;
    std::uint64_t datagrams_received = 0;
    std::uint64_t dropped_full = 0;   ///< too many bytes were under way
    std::uint64_t dropped_unfit = 0;  ///< too long, or not Ethernet
    std::uint64_t forged = 0;         ///< datagrams with a wrong tag
    std::uint64_t replayed = 0;       ///< datagrams that came twice or far too late
    std::uint64_t malformed = 0;      ///< datagrams that the key's owner has made wrong
  };
  using Take = std::function<void(std::span<const std::byte> frame)>;

  /// `blocks`: of the other hub, as it began. `out` and `clock` must outlive it.
  Session(const Ends& ends, const Keys& keys, const Blocks& blocks, Out& out,
          const util::TimeSource& clock);

  /// Whether an arriving datagram is of this session, and came for the first time.
  bool accept(const Head& head, std::span<const std::byte> datagram);
  /// Handles its body. `take` gets the frames, which are valid during the call. True: members()
  /// has changed. @pre accept() is true
  bool handle(const Head& head, std::span<const std::byte> body, const Take& take);

  /// Sends a packet, at the latest by settle().
  void send(const wire::Frame& frame);
  /// Whether a station must wait before it sends more frames.
  bool must_wait() { return flight_.must_wait(clock_); }
  /// `changed`: they are sent again soon, as one datagram may be lost.
  void send_members(const Members& own, bool changed);
  void say_goodbye();
  /// Sends what was collected, and an acknowledgement if many datagrams came.
  void settle();
  /// Does what is due. `own`: the processes of this hub.
  void tick(const Members& own);
  /// When tick() must be called.
  util::Time next() const;
  bool is_over() const { return said_goodbye_ || clock_() - last_members_ >= kSilence; }

  const Ends& ends() const { return ends_; }
  const Members& members() const { return members_; }
  std::size_t datagram_size() const { return mtu_.size(); }
  std::uint64_t bytes_under_way() const { return flight_.bytes(); }
  std::uint64_t frames_given_up() const { return reassembly_.lost(); }
  const Counters& counters() const { return counters_; }

 private:
  void start(Draft& draft, Kind kind);
  void finish(Draft& draft);
  void send_empty(Kind kind, std::size_t size = 0);
  void send_in_pieces(std::span<const std::byte> frame);
  void flush();
  bool take_members(const Head& head, std::span<const std::byte> body);
  void take_frames(std::span<const std::byte> body, const Take& take);
  void take_piece(std::span<const std::byte> body, const Take& take);

  const Ends ends_;
  const Keys keys_;
  Out& out_;
  const util::TimeSource& clock_;
  Draft batch_;                                         ///< of kFrames, if it has a body
  Draft draft_;                                         ///< of all other kinds
  std::array<std::byte, Reassembly::kFrameMax> large_;  ///< a frame that is sent in pieces
  std::uint64_t sequence_ = 0;
  std::uint32_t large_sent_ = 0;
  ReplayWindow received_;
  std::uint64_t unacknowledged_ = 0;  ///< bytes that came since the last datagram was sent
  Flight flight_;
  PathMtu mtu_;
  Reassembly reassembly_;
  Members members_;
  std::uint64_t members_sequence_ = 0;
  util::Time last_members_;  ///< when the last padded kMembers came
  util::Time next_members_;
  bool said_goodbye_ = false;
  Counters counters_;
};

}  // namespace softhca::trunk

// A process's place on a hub, behind a port of its own switch. Frames go to the hub, or directly to
// processes that it was introduced to (link_note.h). This code runs inside arbitrary programs: it
// has no thread, and makes no call that blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "fabric/ring_pair.h"
#include "hub/forwarded_datagram.h"
#include "hub/join.h"
#include "hub/link_note.h"
#include "hub/patience.h"
#include "hub/shared_addresses.h"
#include "util/time_source.h"

namespace softhca::hub {

class Uplink final : public fabric::Receiver {
 public:
  /// Becomes the receiver of `port`, which takes trains. `sharing`: as share() returned it;
  /// nothing: the process shares no addresses. @pre `joined` is as join() returned it
  Uplink(std::unique_ptr<fabric::Port> port, Joined joined, util::TimeSource clock,
         const std::optional<Sharing>& sharing = std::nullopt);
  ~Uplink() override;

  unsigned number() const { return joined_.number; }
  /// Eventfd that becomes readable when frames come, after prepare_to_sleep().
  int wake() const { return joined_.wake_me.get(); }
  /// Closes the socket in a forked child, without leaving the hub.
  void leave_to_parent() { joined_.socket.reset(); }

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // nothing is looped back
  bool takes_trains() const override { return true; }

  /// Transmits at most `frames` frames from the hub, and as many from each link. Returns their
  /// number.
  std::size_t receive(std::size_t frames);
  /// Releases delivered frames, and wakes sleeping peers that have frames.
  void settle();
  /// Bytes that may be sent now, whatever their destination: 0 or at least kRoomMin. The rings are
  /// read again if less than `wanted` is known to be free. As with PAUSE, a station that sends no
  /// more loses nothing, unless a receiver drains nothing for a tenth of a second.
  std::size_t room(std::size_t wanted);
  /// Room for several packets.
  static constexpr std::size_t kRoomMin = std::size_t{128} << 10;
  /// Requests a wakeup for the next frame. False if a frame is already there.
  bool prepare_to_sleep();

  /// Null: the process shares no addresses. Requests are sent by settle().
  SharedAddresses* shared() { return shared_ ? &*shared_ : nullptr; }
  const SharedAddresses* shared() const { return shared_ ? &*shared_ : nullptr; }
  /// Waits until the hub has answered all requests for addresses, for at most `longest`. Only
  /// before others use the Uplink.
  void await_answers(std::chrono::milliseconds longest);

  /// Gets the datagrams that the hub forwards to a process that shares addresses, during receive().
  /// A packet is valid during the call. The handler must transmit nothing in this fabric.
  using Forwarded = std::function<void(const ForwardedDatagram&)>;
  void set_forwarded(Forwarded forwarded) { forwarded_ = std::move(forwarded); }

  /// Whether the hub has closed the connection. Returns true once; after that only links carry
  /// frames.
  bool see_hub_go();

  /// Frees the memory of rings that carried nothing since the last call. Call about once a second.
  void free_idle_pages();

  /// Number of links that frames are sent on.
  std::size_t links() const;
  /// Packets from the hub and links that were dropped: with the MAC of this process's device as
  /// their source, or to its router.
  std::uint64_t forged() const { return forged_; }

 private:
  struct Link {
    Link(std::uint64_t its_mac, os::SharedRing out, os::SharedRing in, UniqueFd its_wake,
         util::Time now)
        : mac(its_mac),
          rings(std::move(out), std::move(in), fabric::RecordForm::kProcess),
          wake(std::move(its_wake)),
          made(now) {}

    const std::uint64_t mac;
    fabric::RingPair rings;
    UniqueFd wake;  ///< wakes the peer
    Patience patience{Patience::kLeast};
    bool ready = false;      ///< the peer reads its ring
    bool sends = false;      ///< frames to the peer go into its ring
    std::size_t by_hub = 0;  ///< bytes sent to the peer through the hub before `sends` is set
    bool reads = false;      ///< frames through the hub precede those in the ring
    bool gone = false;       ///< the peer has left the hub
    const util::Time made;
  };

  Link* find(std::uint64_t mac);
  std::size_t receive_from(Link& link, std::size_t frames);
  bool is_forged(const wire::Frame& frame);
  void say(LinkNote::Kind kind, std::uint64_t to);
  bool handle_note(const wire::Frame& frame);
  void take_datagram(const wire::Frame& frame);
  void read_socket();
  void meet(const Introduction& introduction, std::span<UniqueFd, kIntroductionFds> fds);
  void switch_over();
  bool is_late(Link& link) const;
  void drop_gone();

  Joined joined_;
  const util::TimeSource clock_;
  const std::uint64_t mac_;
  fabric::RingPair hub_;
  Patience patience_{Patience::kLeast};  ///< how long to wait for the hub
  std::vector<std::unique_ptr<Link>> links_;
  Link* last_ = nullptr;     ///< link of the last frame
  bool may_switch_ = false;  ///< a ready link does not send yet
  std::uint64_t forged_ = 0;
  Forwarded forwarded_;
  std::optional<SharedAddresses> shared_;
  bool hub_has_gone_ = false;
  bool hub_has_hung_up_ = false;        ///< but see_hub_go() has not reported it yet
  std::unique_ptr<fabric::Port> port_;  ///< must be destroyed first: its frames refer to the rings
};

}  // namespace softhca::hub

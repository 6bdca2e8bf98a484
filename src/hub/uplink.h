// The place of a process on a hub, behind a port of its own switch: frames go to the hub, and to
// the processes that it has been introduced to (link_note.h) straight. It runs inside programs of
// all kinds: no thread, and no call that waits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/port.h"
#include "fabric/ring_pair.h"
#include "hub/join.h"
#include "hub/link_note.h"
#include "hub/patience.h"
#include "util/time_source.h"

namespace softhca::hub {

class Uplink final : public fabric::Receiver {
 public:
  /// Becomes the receiver of `port`, which takes trains. @pre nothing was done with `joined`
  Uplink(std::unique_ptr<fabric::Port> port, Joined joined, util::TimeSource clock);
  ~Uplink() override;

  unsigned number() const { return joined_.number; }
  /// Eventfd that is readable when frames came, after prepare_to_sleep().
  int wake() const { return joined_.wake_me.get(); }
  /// Without leaving: in a child that was forked.
  void leave_to_parent() { joined_.socket.reset(); }

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // nothing is looped back
  bool takes_trains() const override { return true; }

  /// Transmits at most `frames` of the hub, and of each link. Returns how many there were.
  std::size_t receive(std::size_t frames);
  /// Gives back what is delivered, and wakes those who sleep and have something.
  void settle();
  /// Bytes that may be sent now and have room, wherever they go; 0 or at least kRoomMin, and looked
  /// at anew where they were fewer than `wanted`. As a port that is told to pause: a station that
  /// keeps to it loses nothing. Who takes nothing for a tenth of a second is not waited for.
  std::size_t room(std::size_t wanted);
  /// Some packets.
  static constexpr std::size_t kRoomMin = std::size_t{128} << 10;
  /// Asks to be woken for the next frame. False if there is one already.
  bool prepare_to_sleep();

  /// Looks whether the hub has gone. True once: from then on no frame comes or goes but those of
  /// links.
  bool see_hub_go();

  /// Once a second or so: gives the memory back of rings that nothing was sent into.
  void free_idle_pages();

  /// To which frames go straight.
  std::size_t links() const;

 private:
  struct Link {
    Link(std::uint64_t its_mac, util::SharedRing out, util::SharedRing in, UniqueFd its_wake,
         util::Time now)
        : mac(its_mac),
          rings(std::move(out), std::move(in), fabric::RecordForm::kProcess),
          wake(std::move(its_wake)),
          made(now) {}

    const std::uint64_t mac;
    fabric::RingPair rings;
    UniqueFd wake;  ///< it
    Patience patience{Patience::kLeast};
    bool ready = false;      ///< the other end reads its ring
    bool sends = false;      ///< what is for it goes into its ring
    std::size_t by_hub = 0;  ///< bytes that it was sent before
    bool reads = false;      ///< what came by the hub was before
    bool gone = false;       ///< it sends nothing more
    const util::Time made;
  };

  Link* find(std::uint64_t mac);
  void say(LinkNote::Kind kind, std::uint64_t to);
  bool handle_note(std::span<const std::byte> frame);
  void meet_introduced();
  void switch_over();
  bool is_late(Link& link) const;
  void drop_gone();

  Joined joined_;
  const util::TimeSource clock_;
  const std::uint64_t mac_;
  fabric::RingPair hub_;
  Patience patience_{Patience::kLeast};  ///< with the hub
  std::vector<std::unique_ptr<Link>> links_;
  Link* last_ = nullptr;     ///< that a frame went to
  bool may_switch_ = false;  ///< a link is ready, and does not send yet
  bool hub_has_gone_ = false;
  bool hub_has_hung_up_ = false;        ///< and see_hub_go() has not said so yet
  std::unique_ptr<fabric::Port> port_;  ///< goes first: its frames refer to the rings
};

}  // namespace softhca::hub

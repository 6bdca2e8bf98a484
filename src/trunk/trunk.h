// Joins the switch of a hub with those of other machines: the hub's port to them
// (hub/other_hubs.h), without the socket. Whole Ethernet frames cross.
//
// All hubs of a fabric are joined with each other. A frame from a hub goes to stations of this one
// only, never to a further hub: so there are no loops, and multicast reaches each hub once.
//
// A frame goes to the hub that has its destination: by the block of a process's number, or by the
// port where another station was last seen. Multicast, and frames for unknown stations, go to all.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/mac_table.h"
#include "fabric/port.h"
#include "hub/other_hubs.h"
#include "hub/patience.h"
#include "hub/station_frame.h"
#include "trunk/sessions.h"
#include "wire/ethernet.h"

namespace softhca::trunk {

class Trunk final : public fabric::Receiver {
 public:
  struct Options {
    Identity identity;
    std::vector<Target> targets;
    /// Processes of other hubs have come or gone in this block of numbers; may be empty.
    std::function<void(unsigned block, const std::bitset<256>& living)> far = {};
    util::TimeSource clock = util::monotonic_now;
  };
  struct Counters {
    std::uint64_t frames = 0;       ///< that came, with those that were dropped
    std::uint64_t spoofed = 0;      ///< with the address of a process that its hub does not have
    std::uint64_t to_departed = 0;  ///< for processes that this hub does not have
    std::uint64_t notes = 0;        ///< of links between processes (hub/link_note.h)
    std::uint64_t malformed = 0;    ///< too short
  };

  /// `out` must outlive it.
  Trunk(Options options, Out& out);

  // For the hub (hub/other_hubs.h).
  void attach(std::unique_ptr<fabric::Port> port, hub::OtherHubs::IsFull is_full);
  void detach();
  bool has(unsigned number) const { return far_block(number / kBlock); }
  bool may_give(unsigned number) const;
  void handle_member(unsigned number, bool is_there);
  bool must_wait(std::span<const std::byte> frame);
  /// True while frames from other hubs wait for room at one station. All of them wait, so the time
  /// is bounded (patience_).
  bool waits();
  void settle();

  /// Claims a block of numbers for this hub. False: another one has it.
  bool claim(unsigned block);

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // nothing is looped back

  Sessions& sessions() { return sessions_; }
  const Sessions& sessions() const { return sessions_; }
  const Counters& counters() const { return counters_; }
  void inspect(util::InspectNode& node) const;

 private:
  static constexpr unsigned kBlock = 256;
  static constexpr std::size_t kStations = 4096;
  /// Full stations delay so many bytes from other hubs by kLongest at most in total. Beside a
  /// station that takes nothing, the others still get 10 MB/s.
  static constexpr std::uint64_t kBytesPerPatience = 8 * hub::Patience::kLeast;

  void handle_change(std::size_t peer);
  void take_frame(std::size_t peer, std::span<const std::byte> frame);
  bool far_block(unsigned block) const;
  std::optional<std::size_t> hub_of(std::span<const std::byte> frame) const;
  bool is_allowed(std::size_t peer, std::span<const std::byte> frame);

  Options options_;
  Members own_;
  unsigned claimed_ = kBlock;  ///< the last block claimed; kBlock: none
  Sessions sessions_;
  std::vector<Members> members_;  ///< of each peer, as reported to options_.far
  fabric::MacTable stations_{kStations};
  std::unique_ptr<fabric::Port> port_;
  hub::OtherHubs::IsFull is_full_;
  /// The first bytes of a frame whose station has no room: what hub::Station needs.
  struct Head {
    std::array<std::byte, hub::StationFrame::kHeadMax> bytes{};
    std::size_t size = 0;
  };
  std::optional<Head> full_;
  hub::Patience patience_{kBytesPerPatience};
  std::uint64_t taken_ = 0;  ///< bytes of frames from other hubs
  Counters counters_;
};

}  // namespace softhca::trunk

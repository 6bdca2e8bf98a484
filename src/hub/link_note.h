// Notes between the hub and its processes inside the rings: Ethernet frames with the EtherType of
// local experiments (IEEE 802 9.2.3.4; 88-B6). With them two processes with much traffic set up a
// link that bypasses the hub:
//
//   hub -> A, B   kIntroduced  an Introduction to the other process is on the socket
//   B -> A        kReady       the link's rings are mapped
//   A -> B        kSwitched    the last frame through the hub: read the ring from now on
//   hub -> A      kGone        the other process has left the hub
//
// The reverse direction works alike. Both processes have announced on their sockets that they
// accept links: hello.h. A switches when the hub has delivered all of A's frames, so frames stay in
// order. Like any frame a note may be lost. Then the hub keeps carrying the frames, or B reads the
// ring a little later, after all that the hub has for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "wire/ethernet.h"
#include "wire/frame.h"

namespace softhca::hub {

struct LinkNote {
  /// kDatagram is no note: forwarded_datagram.h.
  enum class Kind : std::uint8_t { kIntroduced = 2, kReady, kSwitched, kGone, kDatagram };

  static constexpr std::uint16_t kEtherType = 0x88b6;
  /// Stands behind the Ethernet header of all notes: distinguishes softhca's frames from other
  /// users' experiments.
  static constexpr std::string_view kOurs = "softhca";

  wire::MacAddress to;
  wire::MacAddress from;  ///< the process that the note is about
  Kind kind = Kind::kIntroduced;

  /// Nothing: the frame is no note.
  static std::optional<LinkNote> parse(std::span<const std::byte> frame);
  wire::Frame frame() const;
  /// Bytes of a note, without padding.
  static constexpr std::size_t kSize = wire::EthernetLayout::kSize + 8;
  void emit(std::span<std::byte, kSize> out) const;
};

/// Sent on the socket, with the descriptors of kIntroductionFds: introduces the process with number
/// `number`.
struct Introduction {
  std::uint32_t number = 0;
  std::array<std::uint8_t, 6> mac{};
  std::array<std::uint8_t, 6> reserved{};
};
static_assert(sizeof(Introduction) == 16);

/// Descriptors of the message, named from the receiving process's view.
enum IntroductionFd : std::size_t { kRingToIt, kRingFromIt, kWakeIt, kIntroductionFds };

}  // namespace softhca::hub

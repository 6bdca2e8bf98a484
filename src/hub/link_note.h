// What a hub and its processes say to each other inside the rings: Ethernet frames of a type that
// is for local experiments (IEEE 802 9.2.3.4; 88-B6). By them two processes that have much to say
// to each other come to do so without the hub:
//
//   hub -> A, B   kIntroduced  a message about the other one is on your socket: an Introduction
//   B -> A        kReady       I have our rings
//   A -> B        kSwitched    the last frame from me that comes by the hub: now look at the ring
//   hub -> A      kGone        the other one has left the hub
//
// and the same the other way round. Both have said on their sockets that they are willing: hello.h.
// A switches when the hub has delivered all that A had sent, so frames stay in order. Each note may
// be lost, as any frame: then the hub goes on to carry what it carried, or B reads the ring a
// little later, after all that the hub has for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/ethernet.h"
#include "wire/frame.h"

namespace softhca::hub {

struct LinkNote {
  enum class Kind : std::uint8_t { kIntroduced = 2, kReady, kSwitched, kGone };

  wire::MacAddress to;
  wire::MacAddress from;  ///< of the process that is meant
  Kind kind = Kind::kIntroduced;

  /// Nothing: it is another kind of frame.
  static std::optional<LinkNote> parse(std::span<const std::byte> frame);
  wire::Frame frame() const;
};

/// On the socket, with the descriptors of kIntroductionFds, of the process that has number
/// `number`.
struct Introduction {
  std::uint32_t number = 0;
  std::array<std::uint8_t, 6> mac{};
  std::array<std::uint8_t, 6> reserved{};
};
static_assert(sizeof(Introduction) == 16);

/// As the process sees them.
enum IntroductionFd : std::size_t { kRingToIt, kRingFromIt, kWakeIt, kIntroductionFds };

}  // namespace softhca::hub

// What the hub says to a process that connects, at once and only once: one message on the socket,
// with the descriptors of kFds in the order of Fd. The process says nothing there, ever; the end of
// its socket is its end. To those that ask for it in their ring, the hub has more to say:
// link_note.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca::hub {

/// In the machine's own byte order: both ends run on it.
struct Hello {
  /// Changes with everything that follows.
  static constexpr std::uint64_t kMagic = 0x3230'6275'6861'6368;  // "hcahub02"

  std::uint64_t magic = kMagic;
  std::uint32_t number = 0;
  std::array<std::uint8_t, 6> mac{};
  std::array<std::uint8_t, 2> reserved{};
};
static_assert(sizeof(Hello) == 24);

/// Descriptors that come with it, as the process sees them.
enum Fd : std::size_t { kOutRing, kInRing, kWakeHub, kWakeMe, kFds };

}  // namespace softhca::hub

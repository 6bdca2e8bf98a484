// What the hub says to a process that connects, and only once: one message on the socket, with the
// descriptors of kFds in the order of Fd. A process that could do without the hub answers with the
// byte kWilling, and others say nothing there, ever; the end of its socket is its end. To those
// that are willing, the hub has more to say: link_note.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca::hub {

/// In the machine's own byte order: both ends run on it.
struct Hello {
  /// Changes with everything that follows.
  static constexpr std::uint64_t kMagic = 0x3330'6275'6861'6368;  // "hcahub03"

  std::uint64_t magic = kMagic;
  std::uint32_t number = 0;
  std::array<std::uint8_t, 6> mac{};
  std::array<std::uint8_t, 2> reserved{};
};
static_assert(sizeof(Hello) == 24);

/// By a process that sends to others without the hub where it is told how. Once.
constexpr char kWilling = 'w';

/// Descriptors that come with it, as the process sees them.
enum Fd : std::size_t { kOutRing, kInRing, kWakeHub, kWakeMe, kFds };

}  // namespace softhca::hub

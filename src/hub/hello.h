// The hub's first message to a process that connects: one message on the socket, with the
// descriptors of kFds in the order of Fd. A process that can send without the hub answers with the
// byte kWilling, perhaps after other requests (request.h). Closing the socket ends the connection.
// The hub sends more messages to processes that ask for them, and to willing ones (link_note.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca::hub {

/// In host byte order: both ends run on one machine.
struct Hello {
  /// Must change whenever anything below changes.
  static constexpr std::uint64_t kMagic = 0x3530'6275'6861'6368;  // "hcahub05"

  std::uint64_t magic = kMagic;
  std::uint32_t number = 0;
  std::array<std::uint8_t, 6> mac{};
  std::array<std::uint8_t, 2> reserved{};
};
static_assert(sizeof(Hello) == 24);

/// Sent once, by a process that accepts links to other processes.
constexpr char kWilling = 'w';

/// Descriptors of the message, named from the process's view.
enum Fd : std::size_t { kOutRing, kInRing, kWakeHub, kWakeMe, kFds };

}  // namespace softhca::hub

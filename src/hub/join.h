// A process's end of the hub: joining it. This code runs inside arbitrary programs: it throws
// nothing, keeps nothing, and touches no signals.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "os/shared_ring.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::hub {

using os::UniqueFd;

/// 02:5F:CB and the number: locally administered, and distinct from the MACs of `softhca serve`.
constexpr std::array<std::uint8_t, 3> kMacs = {0x02, 0x5F, 0xCB};
constexpr std::array<std::uint8_t, 6> mac_of(unsigned number) {
  return {kMacs[0],
          kMacs[1],
          kMacs[2],
          static_cast<std::uint8_t>(number >> 16),  // no format: the bytes of a number
          static_cast<std::uint8_t>(number >> 8),   // no format: as above
          static_cast<std::uint8_t>(number)};
}

/// A place on the hub's switch. A fabric::RingPort takes the rings and moves the frames. If its
/// settle() returns true, write to wake_hub. To wait for frames, call prepare_to_sleep() and then
/// wait for wake_me.
struct Joined {
  unsigned number = 0;                ///< unique on this hub, 1 or more
  std::array<std::uint8_t, 6> mac{};  ///< unique on this hub; locally administered, unicast
  std::optional<os::SharedRing> out;  ///< frames to the hub
  std::optional<os::SharedRing> in;   ///< frames from the hub
  UniqueFd wake_hub;                  ///< nonblocking eventfd: write to wake the hub
  UniqueFd wake_me;                   ///< nonblocking eventfd: readable when frames came
  UniqueFd socket;  ///< close it to leave; readable (end of file) when the hub has gone
};

/// How long join() waits for the hub to accept, and again for its answer: when many programs start
/// together, the hub may have to wait for a processor.
constexpr std::chrono::seconds kJoinPatience{60};

/// Joins the hub that listens at `socket_path`. Fails if:
/// - no process listens there, or one of another user does;
/// - the hub refuses (it is another user's, or full) or does not answer in time;
/// - the hub is of another version of softhca;
/// - there is no memory.
util::Result<Joined> join(const std::string& socket_path);

/// Whether a hub has listened at `socket_path` and has gone. A living one does not notice the
/// question.
bool has_gone(const std::string& socket_path);

}  // namespace softhca::hub

// The end of a hub that a process has: what it gets by joining, and no more. It runs inside
// programs of all kinds: it throws nothing, keeps nothing, and touches no signals.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "util/result.h"
#include "util/shared_ring.h"
#include "vfio_user/unique_fd.h"

namespace softhca::hub {

using vfio_user::UniqueFd;

/// 02:5F:CB, and the number: locally administered, and not those that `softhca serve` gives.
constexpr std::array<std::uint8_t, 3> kMacs = {0x02, 0x5F, 0xCB};
constexpr std::array<std::uint8_t, 6> mac_of(unsigned number) {
  return {kMacs[0],
          kMacs[1],
          kMacs[2],
          static_cast<std::uint8_t>(number >> 16),
          static_cast<std::uint8_t>(number >> 8),
          static_cast<std::uint8_t>(number)};
}

/// A place on the hub's switch. Frames are moved by a fabric::RingPort, which takes the rings;
/// where its settle() says so, wake_hub is written to. Who waits for frames waits for wake_me,
/// after prepare_to_sleep().
struct Joined {
  unsigned number = 0;                  ///< unique on this hub, 1 or more
  std::array<std::uint8_t, 6> mac{};    ///< unique on this hub, made of the number; local, unicast
  std::optional<util::SharedRing> out;  ///< frames to the hub
  std::optional<util::SharedRing> in;   ///< frames from the hub
  UniqueFd wake_hub;                    ///< eventfd that does not block: write to wake the hub
  UniqueFd wake_me;                     ///< eventfd that does not block: readable when frames came
  UniqueFd socket;  ///< closing it is leaving; readable (its end) when the hub has gone
};

/// How long join() waits for the hub to accept, and then for its answer: where many programs start
/// at the same time, the hub has to wait for a processor.
constexpr std::chrono::seconds kJoinPatience{60};

/// Joins the hub that listens at `socket_path`. Fails if no process listens there or one of another
/// user does, if the hub refuses (another user, or full) or does not answer in time, if it is of
/// another version of softhca, or if there is no memory.
util::Result<Joined> join(const std::string& socket_path);

}  // namespace softhca::hub

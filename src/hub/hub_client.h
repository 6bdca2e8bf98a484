// The hub's state of a connected process.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "hub/hello.h"
#include "hub/hub.h"
#include "hub/join.h"
#include "hub/request.h"
#include "util/endian.h"
#include "wire/mac_address.h"

namespace softhca::hub {

/// The process number in a MAC; 0: the MAC belongs to no process.
inline unsigned number_of(std::span<const std::byte> mac) {
  const auto own = std::as_bytes(std::span(kMacs));
  if (!std::ranges::equal(mac.first(own.size()), own)) return 0;
  std::array<std::byte, sizeof(std::uint32_t)> number{};
  std::ranges::copy(mac.subspan(own.size(), 3), number.begin() + 1);
  return util::load_be32(number.data());
}

inline wire::MacAddress address_of(unsigned number) {
  const auto mac = mac_of(number);
  return wire::MacAddress::from(std::as_bytes(std::span(mac)));
}

struct Hub::Client {
  Client(unsigned client_number, std::unique_ptr<fabric::Port> port, os::SharedRing out,
         os::SharedRing in)
      : number(client_number), link(std::move(port), std::move(out), std::move(in)) {}

  const unsigned number;
  pid_t pid = 0;  ///< for the log
  os::UniqueFd socket;
  os::UniqueFd bell;  ///< the process signals it to wake the hub
  os::UniqueFd wake;  ///< the hub signals it to wake the process
  fabric::RingPort link;
  Patience patience{Patience::kLeast};  ///< how long senders wait for this process
  RequestReader requests;
  bool active = false;
  bool leaves = false;            ///< its socket is closed
  std::size_t last_frames = 0;    ///< taken since the socket closed
  std::uint64_t losses_seen = 0;  ///< link.counters().dropped_full at the last look

  // Links to others (link_note.h).
  bool is_willing = false;
  /// Frames to each other process, by number, until the two are introduced
  std::map<unsigned, unsigned> frames_to;
  std::set<unsigned> known;  ///< processes introduced to it
  std::set<unsigned>
      departed;  ///< introduced processes that have left; their kGone notes await room

  /// Maximum links of one process.
  static constexpr std::size_t kLinksMax = 32;
  bool knows_enough() const { return known.size() + departed.size() >= kLinksMax; }
};

}  // namespace softhca::hub

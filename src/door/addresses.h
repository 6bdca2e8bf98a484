// Who the processes of a hub are on the network: each is a host of its own, and its number gives
// its addresses. IPv4: in 198.18.0.0/15, which is for tests of network devices and routed nowhere
// (RFC 2544).
#pragma once

#include <cstdint>
#include <vector>

#include "uverbs/device.h"

namespace softhca::door {

/// The IPv4 address of a process, by its number on the hub.
driver::Gid ipv4_gid_of(unsigned number);
/// The link-local address that follows from `mac` (RFC 4291 appendix A).
driver::Gid link_local(const driver::Mac& mac);
/// As the kernel's table has them: the link-local address of `mac` and `others`, each for RoCE v1,
/// then v2.
std::vector<uverbs::GidEntry> gids_of(const driver::Mac& mac,
                                      const std::vector<driver::Gid>& others);
/// The MAC that follows from an address: of another process, or of who made his link-local address
/// of it (RFC 4291 appendix A). False: it follows from others' word only.
bool find_mac(const driver::Gid& to, driver::Mac& mac);
/// The IPv4 address is one that a process may have.
bool is_process(const driver::Gid& to);
/// The same as the hub gives.
driver::Mac mac_of(unsigned number);

}  // namespace softhca::door

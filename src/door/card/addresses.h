// Network addresses of a hub's processes. Each process is a host of its own, and its number
// determines its addresses. IPv4 addresses are in 198.18.0.0/15, which is for tests of network
// devices and routed nowhere (RFC 2544).
#pragma once

#include <cstdint>
#include <vector>

#include "uverbs/device.h"

namespace softhca::door {

/// The IPv4 address of a process, from its number on the hub.
driver::Gid ipv4_gid_of(unsigned number);
/// The link-local address formed from `mac` (RFC 4291 appendix A).
driver::Gid link_local(const driver::Mac& mac);
/// A GID table in the kernel's order: the link-local address of `mac`, then `others`, each for RoCE
/// v1 and then for v2.
std::vector<uverbs::GidEntry> gids_of(const driver::Mac& mac,
                                      const std::vector<driver::Gid>& others);
/// The MAC that an address determines: another process's, or the MAC from which a link-local
/// address was formed (RFC 4291 appendix A). False: the address determines none, and must be
/// resolved.
bool find_mac(const driver::Gid& to, driver::Mac& mac);
/// Whether the IPv4 address is in the range of processes.
bool is_process(const driver::Gid& to);
/// The number in the IPv4 address of a process. @pre is_process(of)
unsigned number_of(const driver::Gid& of);
/// The MAC that the hub gives to this number.
driver::Mac mac_of(unsigned number);

}  // namespace softhca::door

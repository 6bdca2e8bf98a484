// Who the processes of a hub are on the network: each is a host of its own, and its number gives
// its addresses. IPv4: in 198.18.0.0/15, which is for tests of network devices and routed nowhere
// (RFC 2544).
#pragma once

#include <cstdint>
#include <vector>

#include "uverbs/device.h"

namespace softhca::door {

/// As the kernel's table has them: for each address RoCE v1, then v2.
std::vector<uverbs::GidEntry> gids_of(unsigned number, const driver::Mac& mac);
/// The MAC of another process; false: none has that address.
bool find_mac(const driver::Gid& to, driver::Mac& mac);
/// The same as the hub gives.
driver::Mac mac_of(unsigned number);

}  // namespace softhca::door

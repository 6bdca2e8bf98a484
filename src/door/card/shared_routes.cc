#include "door/card/shared_routes.h"

#include <algorithm>

#include "door/card/addresses.h"
#include "hub/block_file.h"
#include "hub/roce_link.h"

namespace softhca::door {
namespace {

/// Whether an address of a device is one of the host's interface, and not of the hub only.
bool is_of_host(const driver::Gid& gid) { return !is_process(gid) && !gid.is_link_local(); }

}  // namespace

/// As Machines::follow() asks the hub: the first addresses of the interface.
bool SharedRoutes::shares(const driver::Gid& gid) const {
  if (addresses() == nullptr || !is_of_host(gid)) return false;
  std::size_t count = 0;
  for (const auto& own : parts_.own.all()) {
    if (is_process(own)) continue;
    if (own == gid) return true;
    if (++count == hub::RoceLink::kAddressesMax) return false;
  }
  return false;
}

driver::Mac SharedRoutes::mac() const { return mac_of(parts_.link.number()); }

unsigned SharedRoutes::station() const {
  const auto* const its = addresses();
  return its != nullptr ? its->sharing().station : hub::station_of(parts_.directory);
}

fabric::Port& SharedRoutes::make_port(fabric::Port& below) {
  if (addresses() == nullptr) return below;
  const auto& sharing = addresses()->sharing();
  const auto its = mac_of(sharing.station);
  parts_.neighbours.set_station(its, [this](const driver::Gid& gid) { return shares(gid); });
  port_ = std::make_unique<SharedPort>(
      below, SharedPort::Options{.station = its, .own = mac(), .block = sharing.block});
  return *port_;
}

driver::Mac SharedRoutes::mac_of_own(const driver::Gid& gid) const {
  return shares(gid) ? mac_of(addresses()->sharing().station) : mac();
}

/// Without the file of blocks, packets reach the QP by the station.
driver::Mac SharedRoutes::mac_of_qp(const driver::Mac& its, std::uint32_t qpn) const {
  const auto stands_for_all = station();
  if (stands_for_all == 0 || its != mac_of(stands_for_all)) return its;
  const auto block = hub::block_of(wire::Qpn(qpn));
  if (addresses() != nullptr && block == addresses()->sharing().block) return mac();
  const auto number = hub::process_of_block(parts_.directory, block).value_or(0);
  return number == 0 ? its : mac_of(number);
}

bool SharedRoutes::is_shared(const driver::Gid& gid) const {
  const auto number = station();
  if (number == 0) return false;
  const bool is_own = std::ranges::find(parts_.own.all(), gid) != parts_.own.all().end();
  if (is_own) return shares(gid);
  const auto known = parts_.neighbours.find(gid);
  return known && *known == mac_of(number);
}

}  // namespace softhca::door

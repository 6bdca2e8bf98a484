// Which identifiers may have a port number at the same time, as Linux has it: those of several
// addresses, and those of 0.0.0.0 and :: that serve one family each. To other programs a number is
// of one process.
#include <cerrno>

#include "rdma_cm/manager.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::uint16_t kFirstFreePort = 32768, kFreePorts = 28232;

/// Two of one port number.
bool are_in_each_others_way(const Identifier& one, const Identifier& other) {
  const bool apart = one.one_family && other.one_family;
  if (apart && one.source.family() != other.source.family()) return false;
  if (one.source.is_any() || other.source.is_any()) return true;
  return one.source.gid() == other.source.gid();
}

}  // namespace

/// Another identifier that has its port number: any, or one that must not.
Manager::Id* Manager::owner_beside(const Id& id, bool in_its_way) const {
  for (const auto& [number, other] : ids_) {
    if (other.get() == &id || !other->owns_port || other->port_space != id.port_space) continue;
    if (other->source.port() != id.source.port()) continue;
    if (!in_its_way || are_in_each_others_way(id, *other)) return other.get();
  }
  return nullptr;
}

/// A port number of its own, if it has none.
Errno Manager::take_port(Id& id) {
  if (id.source.port() != 0) {
    if (owner_beside(id, true) != nullptr) return EADDRINUSE;
    const bool ours = owner_beside(id, false) != nullptr;
    if (!ours && !options_.port_numbers.claim(id.port_space, id.source.port(), id.local.gid)) {
      return EADDRINUSE;
    }
    id.owns_port = true;
    return 0;
  }
  for (unsigned i = 0; i != kFreePorts; ++i) {
    last_port_ = static_cast<std::uint16_t>((last_port_ + 1) % kFreePorts);
    const auto port = static_cast<std::uint16_t>(kFirstFreePort + last_port_);
    if (!options_.port_numbers.claim(id.port_space, port, id.local.gid)) continue;
    id.source.set_port(port);
    id.owns_port = true;
    return 0;
  }
  return EADDRNOTAVAIL;
}

/// It ends. Who has the number as well is found by it from now on.
void Manager::leave_port(Id& id) {
  if (!id.owns_port) return;
  id.owns_port = false;
  const auto port = id.source.port();
  options_.port_numbers.release(id.port_space, port);
  const auto* const other = owner_beside(id, false);
  if (other != nullptr) options_.port_numbers.claim(id.port_space, port, other->local.gid);
}

}  // namespace softhca::rdma_cm

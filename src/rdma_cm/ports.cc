#include "rdma_cm/ports.h"

#include <algorithm>
#include <utility>

namespace softhca::rdma_cm {

util::Result<void> Ports::open(std::span<const DevicePort> ports) {
  for (const auto& port : ports) {
    auto management = ManagementPort::create(
        port.device, [this, index = static_cast<unsigned>(ports_.size())](
                         const cm::Arrival& arrival) { inbox_.push_back({arrival, index}); });
    if (!management) return tl::unexpected(management.error());
    ports_.push_back({port.device, port.node_guid, port.number_block, *std::move(management)});
  }
  return {};
}

bool Ports::send(const cm::Mad& mad, const cm::LocalAddress& from, const driver::Gid& to) {
  if (ports_[from.port].management->send(mad, from.gid_index, to)) return true;
  if (options_.ask && !options_.is_member(to)) options_.ask(to);
  return false;
}

std::optional<cm::Received> Ports::receive() {
  if (inbox_.empty()) return std::nullopt;
  const auto message = inbox_.front();
  inbox_.pop_front();
  return message;
}

std::optional<cm::LocalAddress> Ports::find_local(const driver::Gid& gid) const {
  for (unsigned port = 0; port != ports_.size(); ++port) {
    const auto& device = ports_[port].device;
    for (std::size_t i = 0; i != device.gids_end(); ++i) {
      const auto* entry = device.gid(i);
      if (entry == nullptr || !entry->roce_v2 || entry->gid != gid) continue;
      return cm::LocalAddress{.port = port, .gid_index = static_cast<std::uint8_t>(i), .gid = gid};
    }
  }
  return std::nullopt;
}

/// Source address selection, simplified from IETF RFC 6724 5: prefer the same IP version, then the
/// same scope (link-local or not). Otherwise take any address.
cm::LocalAddress Ports::local_for(const driver::Gid& peer, unsigned port) const {
  const auto& device = ports_[port].device;
  const auto fitness = [&peer](const driver::Gid& gid) {
    if (gid.is_ipv4() != peer.is_ipv4()) return 1;
    return gid.is_link_local() == peer.is_link_local() ? 3 : 2;
  };
  cm::LocalAddress best{.port = port, .gid_index = 0, .gid = {}};
  for (std::size_t i = 0, found = 0; i != device.gids_end(); ++i) {
    const auto* entry = device.gid(i);
    if (entry == nullptr || !entry->roce_v2) continue;
    const auto fits = static_cast<std::size_t>(fitness(entry->gid));
    if (fits <= found) continue;
    found = fits;
    best = {.port = port, .gid_index = static_cast<std::uint8_t>(i), .gid = entry->gid};
  }
  return best;
}

cm::LocalAddress Ports::answers_from(const cm::Received& message) const {
  const auto own = find_local(message.to);
  return own && own->port == message.port ? *own : local_for(message.from, message.port);
}

bool Ports::has_global_ipv6() const {
  return std::ranges::any_of(ports_, [](const OpenPort& port) {
    for (std::size_t i = 0; i != port.device.gids_end(); ++i) {
      const auto* entry = port.device.gid(i);
      if (entry != nullptr && !entry->gid.is_ipv4() && !entry->gid.is_link_local()) return true;
    }
    return false;
  });
}

}  // namespace softhca::rdma_cm

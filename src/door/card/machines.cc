#include "door/card/machines.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "door/card/addresses.h"
#include "util/log.h"
#include "wire/address_text.h"

namespace softhca::door {

void Machines::reach(fabric::Switch& network, const driver::Mac& mac, const OwnAddresses& own,
                     const std::string& name, const std::string& given,
                     const util::TimeSource& clock) {
  if (!own.follows_host()) {
    util::log(util::LogLevel::kWarning,
              "{}: another device of this network has the addresses of {}: this one does not "
              "reach other machines",
              name, given);
    return;
  }
  roce_ = std::make_unique<hub::RoceLink>(network.create_port("sockets"), mac, clock);
  if (follow(own) != 0) return;
  util::log(util::LogLevel::kWarning, "{}: {} has no address that other machines could reach", name,
            given);
}

/// The address of a process's number is only the hub's.
std::size_t Machines::follow(const OwnAddresses& own) {
  if (roce_ == nullptr) return 0;
  std::vector<driver::Gid> all;
  for (const auto& gid : own.all()) {
    if (!is_process(gid)) all.push_back(gid);
  }
  roce_->set_addresses(all);
  return all.size();
}

void Machines::leave_to_parent() {
  if (roce_ != nullptr) roce_->leave_to_parent();
}

std::optional<hub::UdpRoute> Machines::find_route(const driver::Gid& to) const {
  if (roce_ == nullptr || is_process(to) || is_of_run(directory_, to)) return std::nullopt;
  return roce_->find(to);
}

void Machines::inspect(util::Inspection& out) const {
  if (roce_ == nullptr) return;
  out.values([&](util::InspectNode& node) { node.add("lost_unfit", roce_->unfit()); });
  for (const auto& socket : roce_->sockets()) {
    out.part(fmt::format("udp {}", wire::text_of(socket->address())), [&](util::InspectNode& node) {
      const auto& counters = socket->counters();
      node.add("sent", counters.sent);
      node.add("received", counters.received);
      counters.lost.for_each(
          [&](std::string_view name, std::uint64_t count) { node.add(name, count); });
    });
  }
}

}  // namespace softhca::door

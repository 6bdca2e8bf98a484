#include "door/card/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "door/card/addresses.h"
#include "door/memory/reserve.h"
#include "util/log.h"
#include "wire/address_text.h"

namespace softhca::door {
namespace {

/// How long a new device waits for the hub's sockets. If they come later, it uses them then.
constexpr std::chrono::seconds kForAnswers{10};

}  // namespace

void Machines::reach(fabric::Switch& network, const driver::Mac& mac, const OwnAddresses& own,
                     const std::string& name, const std::string& given,
                     const util::TimeSource& clock, hub::Uplink& link) {
  link_ = &link;
  shared_ = link.shared();
  roce_ = std::make_unique<hub::RoceLink>(network.create_port("sockets"), mac, clock,
                                          [this](const wire::Gid& to) { return open(to); });
  (void)follow(own);
  link.await_answers(kForAnswers);
  if (follow(own) != 0) return;
  util::log(util::LogLevel::kWarning, "{}: {} has no address that other machines could reach", name,
            given);
}

/// Null: the hub has not answered yet.
util::Result<std::unique_ptr<hub::RoceSocket>> Machines::open(const wire::Gid& address) {
  auto socket = shared_->take_socket(address);
  if (!socket) return tl::unexpected(socket.error());
  if (!*socket) return std::unique_ptr<hub::RoceSocket>();
  return hub::RoceSocket::adopt(*std::move(socket), address);
}

/// The address of a process's number is only the hub's.
std::size_t Machines::follow(const OwnAddresses& own) {
  if (roce_ == nullptr) return 0;
  std::vector<driver::Gid> all;
  for (const auto& gid : own.all()) {
    if (!is_process(gid)) all.push_back(gid);
  }
  shared_->set_addresses(std::span(all).first(std::min(all.size(), hub::RoceLink::kAddressesMax)));
  roce_->set_addresses(all);
  follow_groups(own);
  return all.size();
}

void Machines::follow_groups(const OwnAddresses& own) {
  std::vector<driver::Gid> all;
  for (const auto& [group, count] : groups_) all.push_back(group);
  roce_->set_groups(all, own.interface_index());
  (void)hold_reserve();  // a socket that finds no memory uses it up
}

void Machines::note_member(const driver::Gid& group, bool joins) {
  if (roce_ == nullptr) return;
  if (joins) {
    // If the count finds no memory, the next follow() leaves the group.
    if (!groups_.contains(group)) roce_->join_group(group);
    ++groups_[group];
    (void)hold_reserve();
    return;
  }
  // This may run in a destructor. If a group has waited for room, follow() joins it.
  const auto at = groups_.find(group);
  if (at == groups_.end() || --at->second != 0) return;
  groups_.erase(at);
  roce_->leave_group(group);
}

void Machines::keep(const hub::ForwardedDatagram& datagram) {
  const auto& packet = datagram.datagram.packet;
  if (roce_ != nullptr) kept_.push_back({datagram, {packet.begin(), packet.end()}});
}

std::size_t Machines::deliver_kept() {
  if (kept_.empty()) return 0;
  const auto all = std::exchange(kept_, {});
  forwarded_ += all.size();
  for (const auto& [forwarded, packet] : all) {
    const auto& datagram = forwarded.datagram;
    (void)roce_->deliver(packet, {.source = datagram.from,
                                  .destination = forwarded.to,
                                  .source_port = datagram.source_port,
                                  .traffic_class = datagram.traffic_class,
                                  .hop_limit = datagram.hop_limit});
  }
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
  out.part("shared", [&](util::InspectNode& node) {
    node.add_hex("block", shared_->sharing().block);
    node.add_hex("station_mac", mac_of(shared_->sharing().station).to_u64());
    node.add("listeners", shared_->listeners());
    node.add("forwarded", forwarded_);
  });
  out.values([&](util::InspectNode& node) {
    node.add("lost_unfit", roce_->unfit());
    node.add("dropped_forged", link_->forged());
  });
  const auto show = [&](std::string_view kind, const hub::RoceSocket& socket) {
    const auto name = fmt::format("{} {}", kind, wire::text_of(socket.address()));
    out.part(name, [&](util::InspectNode& node) {
      const auto& counters = socket.counters();
      node.add("sent", counters.sent);
      node.add("received", counters.received);
      counters.lost.for_each(
          [&](std::string_view reason, std::uint64_t count) { node.add(reason, count); });
    });
  };
  for (const auto& socket : roce_->sockets()) show("udp", *socket);
  for (const auto& member : roce_->multicast().members()) show("group", *member.socket);
}

}  // namespace softhca::door

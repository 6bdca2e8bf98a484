#include "server/switches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "os/packet_socket.h"
#include "os/tap_device.h"

namespace softhca::server {
namespace {

/// Opens the other end of a port to a network of the host.
util::Result<std::unique_ptr<os::FrameFile>> open_file(const std::string& port) {
  if (port.starts_with(kTap)) return os::TapDevice::open(port.substr(kTap.size()));
  return os::PacketSocket::open(port.substr(kPacket.size()));
}

/// Frames that have waited are left to deliver(), because functions run after this.
util::Time pass_time_of(fabric::FaultyLink& link, util::Time now) {
  if (!link.has_due()) link.handle_timeout(now);
  return link.next_event();
}

}  // namespace

util::Result<void> check_port(std::string_view port) {
  if (port == "switch" || port.starts_with("switch:") || port.starts_with(kFabric) ||
      is_of_host(port)) {
    return {};
  }
  return util::fail(
      fmt::format("--port {}: want switch, switch:NAME, fabric:NAME, tap:NAME or "
                  "packet:INTERFACE",
                  port));
}

fabric::Switch* Switches::named(const std::string& name, wire::Link link,
                                fabric::Capture* capture) {
  auto& found = by_name_[name];
  if (!found) {
    found = std::make_unique<One>();
    if (link == wire::Link::kInfiniband) found->subnet.emplace(found->network);
    if (capture != nullptr) found->network.set_tap(&capture->add_tap());
  }
  return found->network.link() == link ? &found->network : nullptr;
}

util::Result<void> Switches::join(os::EventLoop& loop, const std::string& name,
                                  run::FabricMember member, fabric::Capture* capture) {
  auto& network = *named(name, wire::Link::kEthernet, capture);
  auto link = FabricLink::create(loop, network, name.substr(kFabric.size()), std::move(member));
  if (!link) return tl::unexpected(link.error());
  by_name_[name]->hub = *std::move(link);
  return {};
}

util::Result<void> Switches::attach(os::EventLoop& loop, const std::string& name,
                                    fabric::Capture* capture) {
  if (host_port(name) != nullptr) return {};
  auto file = open_file(name);
  if (!file) return util::fail(fmt::format("--port {}: {}", name, file.error().message));
  auto& network = *named(name, wire::Link::kEthernet, capture);
  auto port = HostPort::create(loop, network, name, *std::move(file));
  if (!port) return util::fail(fmt::format("--port {}: {}", name, port.error().message));
  by_name_[name]->host = *std::move(port);
  return {};
}

const HostPort* Switches::host_port(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second->host.get();
}

bool Switches::has_host_ports() const {
  return std::ranges::any_of(by_name_, [](const auto& one) { return one.second->host != nullptr; });
}

bool Switches::has_frames() {
  return std::ranges::any_of(by_name_,
                             [](const auto& one) { return one.second->network.has_work(); }) ||
         std::ranges::any_of(links_, [](const auto* link) { return link->has_due(); });
}

void Switches::deliver(std::size_t frames) {
  for (auto* link : links_) {
    if (link->has_due()) link->handle_timeout(util::monotonic_now(), frames);
  }
  for (auto& [name, one] : by_name_) {
    one->network.deliver(frames);
    if (one->hub) one->hub->settle();
  }
}

std::int64_t Switches::take_work() {
  std::int64_t work = 0;
  for (auto& [name, one] : by_name_) {
    if (one->host) work += one->host->take_work();
  }
  return work;
}

util::Time Switches::pass_time(util::Time now) {
  auto next = util::kNever;
  for (auto& [name, one] : by_name_) {
    if (one->subnet) next = std::min(next, one->subnet->run(now));
  }
  for (auto* link : links_) next = std::min(next, pass_time_of(*link, now));
  return next;
}

void Switches::inspect(util::InspectNode& out) const {
  for (const auto& [name, one] : by_name_) {
    if (one->host) one->host->inspect(out.child(name));
  }
}

}  // namespace softhca::server

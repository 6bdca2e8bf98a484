#include "door/engine/cm_channels.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "door/card/own_address.h"
#include "hub/cm_dispatch.h"
#include "hub/far_members.h"
#include "util/clock.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// Whether a socket can be bound to the address, so that it is this machine's.
bool is_local(const rdma_cm::SocketAddress& address) {
  auto copy = address;
  copy.set_port(0);
  const os::UniqueFd fd(::socket(copy.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&copy.storage), copy.size()) == 0;
}

hub::Service service_of(const rdma_cm::SocketAddress& to, std::uint16_t port_space) {
  return {.machine = to.gid(), .port_space = port_space, .port = to.port()};
}

/// The devices at which it listens.
std::span<Card* const> cards_of(const rdma_cm::ListenerService& listener,
                                std::span<Card* const> all) {
  return listener.port ? all.subspan(*listener.port, 1) : all;
}

hub::CmService service_at(const rdma_cm::ListenerService& listener) {
  using Family = rdma_cm::ListenerService::Family;
  hub::CmService service{.id = listener.service, .address = hub::CmService::all()};
  if (listener.port) {
    service.address = listener.address;
  } else if (listener.family != Family::kBoth) {
    service.address =
        listener.family == Family::kIpv4 ? hub::CmService::all_ipv4() : hub::CmService::all_ipv6();
  }
  return service;
}

void unlisten(const rdma_cm::ListenerService& listener, std::span<Card* const> its) {
  for (const auto* const card : its) {
    auto* const shared = card->shared_routes().addresses();
    if (shared != nullptr) shared->unlisten(service_at(listener));
  }
}

/// The hub hands out connection requests to addresses that processes share.
void register_listeners(rdma_cm::Options& options, std::vector<Card*> cards) {
  options.on_listen = [cards](const rdma_cm::ListenerService& one) {
    const auto its = cards_of(one, cards);
    const auto listens = [&](const Card* card) {
      auto* const shared = card->shared_routes().addresses();
      return shared == nullptr || shared->listen(service_at(one));
    };
    if (std::ranges::all_of(its, listens)) return true;
    unlisten(one, its);
    return false;
  };
  options.on_unlisten = [cards = std::move(cards)](const rdma_cm::ListenerService& one) {
    unlisten(one, cards_of(one, cards));
  };
}

}  // namespace

/// Programs of other machines reach this one by an address of the machine, too, if the network is
/// joined with theirs.
void CmChannels::find_services_of_machines(rdma_cm::Options& options) {
  if (!hub::has_far_members(directory_)) return;
  auto& services = cards_.find(0)->services();
  options.ask_service = [&services](const auto& to, auto port_space) {
    services.ask(service_of(to, port_space));
  };
  options.find_service = [&services](const auto& to, auto port_space) {
    return services.find(service_of(to, port_space));
  };
  options.forget_service = [&services](const auto& to, auto port_space) {
    services.forget(service_of(to, port_space));
  };
  cards_.set_owner_of([this](const hub::Service& service) -> std::optional<driver::Gid> {
    const auto own = port_file_->own(service.port_space, service.port);
    const auto machine = rdma_cm::SocketAddress::of(service.machine, service.port);
    if (!own || !is_local(machine)) return std::nullopt;
    return service.machine.is_ipv4() == own->is_ipv4() ? own : link_local_beside(*own);
  });
}

/// The IPv6 address of the device that has an address: a connection has one IP version.
std::optional<driver::Gid> CmChannels::link_local_beside(const driver::Gid& own) const {
  std::optional<driver::Gid> found;
  cards_.for_each([&](const Card& card) {
    if (card.has_address(own)) found = card.link_local_address();
  });
  return found;
}

util::Result<void> CmChannels::set_up() {
  auto file = PortFile::open(directory_);
  if (!file) return tl::unexpected(file.error());
  port_file_ = *std::move(file);
  // Any of the devices may have the address that a program asks for.
  std::vector<rdma_cm::Manager::Port> ports;
  std::vector<Card*> cards;
  cards_.for_each([&](Card& card) {
    const auto* const shared = card.shared_routes().addresses();
    ports.push_back({card.device(), card.node_guid(),
                     shared == nullptr ? hub::RoceBlock{0} : shared->sharing().block});
    cards.push_back(&card);
  });
  rdma_cm::Options options{
      .port_numbers = *port_file_,
      .is_member =
          [this](const driver::Gid& gid) {
            driver::Mac mac;
            return cards_.find_present(gid, mac);
          },
      .is_local = is_local,
      .ask = [this](const driver::Gid& gid) { cards_.find(0)->ask(gid); },
      .on_unresolved = [this](const driver::Gid& gid) { cards_.warn_if_foreign(gid); },
      .path_mtu = [this](const driver::Gid& gid) { return cards_.path_mtu(gid); },
      .is_gone = {.address = [this](const driver::Gid& gid) { return is_gone(directory_, gid); },
                  .number = [this](const driver::Gid& gid,
                                   std::uint32_t number) { return cards_.is_gone(gid, number); }}};
  register_listeners(options, std::move(cards));
  find_services_of_machines(options);
  auto manager = rdma_cm::Manager::create(ports, memory_, std::move(options));
  if (!manager) return tl::unexpected(manager.error());
  manager_ = *std::move(manager);
  return {};
}

int CmChannels::open() {
  if (manager_ == nullptr) {
    if (auto good = set_up(); !good) {
      util::log(util::LogLevel::kError, "rdma_cm: {}", good.error().message);
      return -EIO;
    }
  }
  auto channel = manager_->open();
  if (!channel) {
    util::log(util::LogLevel::kError, "rdma_cm: {} (ulimit -n?)", channel.error().message);
    return -EMFILE;
  }
  const auto reader = (*channel)->take_reader();
  const int fd = ::fcntl(reader.get(), F_DUPFD_CLOEXEC, 0);
  return fd < 0 ? -errno : fd;
}

int CmChannels::serve(rdma_cm::Channel& channel, const void* bytes, std::size_t size) {
  const auto channel_of = [this](int fd) -> rdma_cm::Channel* {
    struct stat status{};
    return ::fstat(fd, &status) == 0 ? find(status.st_dev, status.st_ino) : nullptr;
  };
  return manager_->serve(channel, reinterpret_cast<std::uint64_t>(bytes), size, channel_of,
                         util::monotonic_now());
}

bool CmChannels::disconnect_all() {
  if (manager_ == nullptr) return false;
  manager_->disconnect_all();
  return true;
}

void CmChannels::leave_to_parent() {
  if (port_file_) port_file_->leave_to_parent();
}

}  // namespace softhca::door

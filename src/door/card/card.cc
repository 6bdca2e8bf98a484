#include "door/card/card.h"

#include <fmt/format.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "door/card/addresses.h"
#include "door/tree/tree.h"
#include "hub/roce_link.h"
#include "util/clock.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// Most frames that a turn takes from the hub.
constexpr std::size_t kFrames = 256;
/// Most bytes of a ring that one packet takes.
constexpr std::size_t kPacketRoom = 4096 + 128;
/// DMA addresses begin at 4 KiB, so that a null pointer is not memory.
constexpr std::uint64_t kFirstAddress = 4096;

/// The minimum ACK timeout, for programs that ask for less. The peer's device is a thread or a call
/// of another program, perhaps behind a hub. On a busy machine it may wait some milliseconds for a
/// processor, although nothing is lost. 67 ms, code 14, is what perftest and many others ask for.
constexpr util::Duration kAckTimeoutMin = std::chrono::nanoseconds(4096) * (1 << 14);
/// With more threads than this per processor, patience grows no further.
constexpr unsigned kCrowdMax = 32;

/// Follows the entries of the link-local address.
constexpr std::size_t kFirstGid = 2;

bool holds(const std::vector<driver::Gid>& all, const driver::Gid& gid) {
  return std::ranges::find(all, gid) != all.end();
}

/// The first free GID table entry, for an address that the table lacks.
std::size_t first_free(const uverbs::Device& device) {
  std::size_t at = kFirstGid;
  while (!device.is_gid_free(at)) ++at;
  return at;
}

/// The index of the interface that the tree shows for the GIDs.
unsigned interface_index(const OwnAddresses& addresses) {
  const auto of_host = addresses.interface_index();
  return of_host != 0 ? of_host : ::if_nametoindex("lo");
}

}  // namespace

util::Result<std::unique_ptr<Card>> Card::create(Options options) {
  std::unique_ptr<Card> card(new Card(std::move(options)));
  if (auto good = card->join(); !good) return tl::unexpected(good.error());
  if (auto good = card->set_up(); !good) return tl::unexpected(good.error());
  return card;
}

std::uint64_t Card::node_guid() const {
  return node_guid_of(options_.number, read_guid_salt(options_.directory));
}

driver::Mac Card::mac() const { return mac_of(link_->number()); }

util::Result<void> Card::join() {
  auto joined = hub::join(options_.directory + "/hub");
  if (!joined) return tl::unexpected(joined.error());
  std::optional<hub::Sharing> sharing;
  if (names_interface(options_.address)) {
    if (const auto granted = hub::share(*joined)) {
      sharing = *granted;
    } else {
      util::log(util::LogLevel::kWarning, "mlx5_{}: it has none of the addresses of {}: {}",
                options_.number, options_.address, granted.error().message);
    }
  }
  link_ = std::make_unique<hub::Uplink>(switch_.create_port("hub"), *std::move(joined),
                                        options_.clock, sharing);
  link_->set_forwarded([this](const auto& datagram) { machines_.keep(datagram); });
  return {};
}

/// Makes the ports between the device and its switch. Returns the device's.
fabric::Port& Card::make_ports() {
  device_port_ = switch_.create_port("device");
  fabric::Port* below = device_port_.get();
  faults_ = LinkFaults::create(*device_port_, {.name = fmt::format("mlx5_{}", options_.number),
                                               .number = link_->number(),
                                               .loss = options_.loss,
                                               .rules = options_.faults,
                                               .clock = options_.clock});
  if (faults_ != nullptr) below = &faults_->port();
  neighbours_ = std::make_unique<hub::Neighbours>(*below, mac());
  services_ = std::make_unique<hub::ServiceFinder>(*neighbours_, mac(), options_.owner_of);
  routes_ = std::make_unique<SharedRoutes>(SharedRoutes::Parts{.directory = options_.directory,
                                                               .link = *link_,
                                                               .neighbours = *neighbours_,
                                                               .own = addresses_});
  fault_port_ = std::make_unique<FaultPort>(routes_->make_port(*services_));
  return *fault_port_;
}

util::Result<void> Card::set_up() {
  const auto* const shared = link_->shared();
  const bool has_share = shared != nullptr || !names_interface(options_.address);
  addresses_ = OwnAddresses::take(options_.directory, link_->number(),
                                  has_share ? options_.address : std::string());
  interface_mtu_ = options_.read_mtu(interface_index(addresses_));
  connectx::DeviceOptions options;
  options.name = fmt::format("mlx5_{}", options_.number);
  options.mac = mac();
  options.node_guid = options.mac.to_u64();
  options.ack_timeout_min = kAckTimeoutMin;
  if (shared != nullptr) {
    options.queue_numbers = {.first = hub::first_number_of(shared->sharing().block),
                             .count = hub::kNumbersOfBlock};
  }
  model_ = std::make_unique<connectx::Device>(std::move(options), make_ports());
  host_ = std::make_unique<driver::InProcessHost>(
      *model_, driver::InProcessHost::Options{.progress = [this] { progress_device(); }});
  const auto mapped = model_->dma().map(
      uverbs::Device::bus_address(kFirstAddress), uverbs::Device::kProgramMemory - kFirstAddress,
      reinterpret_cast<std::byte*>(kFirstAddress), pcie::DmaAccess::kReadWrite);
  if (!mapped) return tl::unexpected(mapped.error());
  const auto on_demand = model_->dma().map_remote(uverbs::Device::on_demand_address(kFirstAddress),
                                                  uverbs::Device::kProgramMemory - kFirstAddress,
                                                  on_demand_, pcie::DmaAccess::kReadWrite);
  if (!on_demand) return tl::unexpected(on_demand.error());
  auto hca = driver::connectx::Hca::open(*host_, {.port_events = false});
  if (!hca) return tl::unexpected(hca.error());
  hca_ = *std::move(hca);
  auto device = uverbs::Device::create(
      *hca_,
      {.gids = gids_of(mac(), addresses_.all()),
       .node_guid = node_guid(),
       .interface_index = interface_index(addresses_),
       .interface_mtu = [this] { return interface_mtu_; },
       .find_mac = [this](const auto& to, auto& its) { return find_present(to, its); },
       .ask_for_mac =
           [this](const auto& to, auto&) {
             (void)options_.want_mac(to);
             return false;
           },
       .mac_of_qp = [this](const auto& its, auto qpn) { return routes_->mac_of_qp(its, qpn); },
       .on_member = [this](const auto& group,
                           bool joins) { machines_.note_member(group, joins); }});
  if (!device) return tl::unexpected(device.error());
  device_ = *std::move(device);
  counters_ =
      std::make_unique<RunCounters>(options_.directory, fmt::format("mlx5_{}", options_.number));
  announce_addresses();
  if (shared != nullptr) {
    machines_.reach(switch_, mac(), addresses_, fmt::format("mlx5_{}", options_.number),
                    options_.address, options_.clock, *link_);
  }
  return {};
}

void Card::progress_device() {
  // Before the frames: the last turn may be long ago.
  const auto now = util::monotonic_now();
  model_->note_time(now);
  if (faults_ != nullptr) [[unlikely]]
    faults_->pass_time(now, hurries_ ? SIZE_MAX : packets_of_room());
  (void)switch_.deliver(kFrames);
  next_ = run_as_far_as_there_is_room(now);
  if (faults_ != nullptr) [[unlikely]]
    next_ = std::min(next_, faults_->next_event());
  (void)switch_.deliver(kFrames);
}

void Card::set_crowd(unsigned threads) { model_->set_ack_patience(std::min(threads, kCrowdMax)); }

/// Packets that all rings and sockets have room for now, at most those of a turn.
std::size_t Card::packets_of_room() {
  const auto packets = pcie::Function::kRunWork / connectx::Device::kPacketWork;
  const auto most = static_cast<std::size_t>(packets) * kPacketRoom;
  return std::min({link_->room(most), most, machines_.room()}) / kPacketRoom;
}

/// Runs the device, but sends no more than there is room for. Without room it runs only commands,
/// which the driver waits for, and is due again immediately.
util::Time Card::run_as_far_as_there_is_room(util::Time now) {
  if (hurries_) return model_->run(now);
  auto packets = packets_of_room();
  if (packets == 0) {
    model_->run_commands(now);
    return now;
  }
  if (faults_ != nullptr) [[unlikely]]
    packets = std::max<std::size_t>(packets / faults_->frames_per_packet(), 1);
  return model_->run(now, static_cast<std::int64_t>(packets) * connectx::Device::kPacketWork);
}

void Card::announce_addresses() {
  std::vector<hub::Neighbours::Address> all;
  for (const auto& gid : addresses_.all()) all.push_back(gid);
  // Last, so that requests for addresses that are not link-local come from one that is not.
  all.push_back(link_local(mac()));
  neighbours_->set_addresses(all);
  // Another process may have had the address before.
  for (const auto& gid : addresses_.all()) {
    if (!is_process(gid)) neighbours_->announce(gid);
  }
}

bool Card::has_address(const driver::Gid& gid) const { return holds(addresses_.all(), gid); }

driver::Gid Card::link_local_address() const { return link_local(mac()); }

bool Card::find_mac(const driver::Gid& to, driver::Mac& its) const {
  if (has_address(to)) {
    its = routes_->mac_of_own(to);
    return true;
  }
  const auto known = neighbours_->find(to);
  if (known) {
    its = *known;
  } else if (machines_.find_route(to)) {
    its = hub::RoceLink::mac();
  } else {
    return false;
  }
  return true;
}

/// Stations of the hub come first, since frames reach them without the kernel.
unsigned Card::mtu_to(const driver::Gid& to) const {
  const auto route = neighbours_->find(to) ? std::nullopt : machines_.find_route(to);
  return route ? route->mtu : 0;
}

bool Card::find_present(const driver::Gid& to, driver::Mac& its) const {
  if (to == link_local(mac())) {
    its = mac();
    return true;
  }
  // An address determines its MAC even if no host has the address: rely on the neighbor table
  // instead.
  const bool is_doubtful =
      to.is_link_local() || (is_process(to) && is_gone(options_.directory, to));
  return is_doubtful ? find_mac(to, its) : options_.find_mac(to, its);
}

void Card::ask(const driver::Gid& to) {
  neighbours_->ask(to);
  machines_.ask(to);
}

std::size_t Card::receive() {
  const auto frames = link_->receive(kFrames);
  if (machines_.take_news()) (void)machines_.follow(addresses_);
  return frames + machines_.receive(kFrames);
}

void Card::look_after_links() {
  link_->free_idle_pages();
  machines_.announce();
}

/// As the kernel (core/roce_gid_mgmt.c, cache.c): a removed address leaves its entries empty, and a
/// new one takes the first entries that nothing uses.
unsigned Card::follow_host() {
  interface_mtu_ = options_.read_mtu(interface_index(addresses_));
  const bool has_changed = addresses_.refresh();
  (void)machines_.follow(addresses_);  // again if one could not be opened before
  if (!has_changed) return 0;
  unsigned changes = 0;
  const auto set = [&](std::size_t at, const std::optional<uverbs::GidEntry>& entry) {
    const auto done = device_->set_gid(at, entry);
    if (!done) util::log(util::LogLevel::kWarning, "GID {}: {}", at, done.error().message);
    ++changes;
  };
  for (std::size_t i = kFirstGid; i != device_->gids_end(); ++i) {
    const auto* entry = device_->gid(i);
    if (entry != nullptr && !holds(addresses_.all(), entry->gid)) set(i, std::nullopt);
  }
  for (const auto& gid : addresses_.all()) {
    for (const bool v2 : {false, true}) {
      bool there = false;
      for (std::size_t i = kFirstGid; i != device_->gids_end(); ++i) {
        const auto* entry = device_->gid(i);
        there |= entry != nullptr && entry->gid == gid && entry->roce_v2 == v2;
      }
      const auto at = first_free(*device_);
      if (!there && at < kGids) set(at, uverbs::GidEntry{.gid = gid, .roce_v2 = v2});
    }
  }
  announce_addresses();
  return changes;
}

void Card::publish_counters() {
  if (const auto now = uverbs::read_counters(*device_); now) counters_->add(*now);
}

bool Card::see_hub_go() {
  if (!link_->see_hub_go()) return false;
  fault_port_->lose_link();
  util::log(util::LogLevel::kError,
            "mlx5_{}: the hub has gone, so the port is down: no frame reaches or leaves this "
            "program any more",
            options_.number);
  return true;
}

void Card::leave_to_parent() {
  link_->leave_to_parent();
  machines_.leave_to_parent();
  addresses_.leave();
}

}  // namespace softhca::door

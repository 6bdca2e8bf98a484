#include "rdma_cm/manager.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

/// Times that a message is said again, and when: long before the timeout that is told, as the way
/// is short.
constexpr unsigned kTries = 15;
constexpr auto kAgainAfter = std::chrono::milliseconds(500);
constexpr auto kLookForGone = std::chrono::seconds(1);
/// IBTA 12.4: twice the packet's life time and the delay of an acknowledgement, as the messages of
/// this manager tell them (kAckTimeout).
constexpr auto kTimeWait = std::chrono::nanoseconds(std::uint64_t{4096} << kAckTimeout);

}  // namespace

util::Result<std::unique_ptr<Manager>> Manager::create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options) {
  std::unique_ptr<Manager> manager(new Manager(memory, std::move(options)));
  // Numbers of another process at this address, some time ago, are others.
  manager->comm_id_base_ =
      static_cast<std::uint32_t>(util::monotonic_now().time_since_epoch().count()) << 8;
  manager->last_port_ = static_cast<std::uint16_t>(manager->comm_id_base_ >> 8);
  for (const auto& port : ports) {
    auto management = ManagementPort::create(
        port.device,
        [raw = manager.get(), index = static_cast<unsigned>(manager->ports_.size())](
            const Mad& mad, const driver::Gid& from) { raw->handle_mad(mad, from, index); });
    if (!management) return tl::unexpected(management.error());
    manager->ports_.push_back({port.device, port.node_guid, *std::move(management)});
  }
  return manager;
}

Manager::~Manager() = default;

util::Result<Channel*> Manager::open() {
  auto channel = Channel::create();
  if (!channel) return tl::unexpected(channel.error());
  channels_.push_back(*std::move(channel));
  return channels_.back().get();
}

Channel* Manager::find_channel(std::uint64_t device, std::uint64_t inode) const {
  const auto at = std::ranges::find_if(
      channels_, [&](const auto& one) { return one->inode() == inode && one->device() == device; });
  return at == channels_.end() ? nullptr : at->get();
}

/// Where it cannot be sent it is lost, and said again. The way may be known by then.
void Manager::send(const Mad& mad, const LocalAddress& from, const driver::Gid& to) {
  if (ports_[from.port].management->send(mad, from.gid_index, to)) return;
  if (options_.ask && !options_.is_member(to)) options_.ask(to);
}

std::optional<LocalAddress> Manager::find_local(const driver::Gid& gid) const {
  for (unsigned port = 0; port != ports_.size(); ++port) {
    const auto& device = ports_[port].device;
    for (std::size_t i = 0; i != device.gids_end(); ++i) {
      const auto* entry = device.gid(i);
      if (entry == nullptr || !entry->roce_v2 || entry->gid != gid) continue;
      return LocalAddress{.port = port, .gid_index = static_cast<std::uint8_t>(i), .gid = gid};
    }
  }
  return std::nullopt;
}

/// IETF RFC 6724 5, as far as it matters here: an address of the same kind, and link-local to
/// link-local. Where there is none, whatever there is.
LocalAddress Manager::local_for(const driver::Gid& peer, unsigned port) const {
  const auto& device = ports_[port].device;
  const auto fitness = [&peer](const driver::Gid& gid) {
    if (gid.is_ipv4() != peer.is_ipv4()) return 1;
    return gid.is_link_local() == peer.is_link_local() ? 3 : 2;
  };
  LocalAddress best{.port = port, .gid_index = 0, .gid = {}};
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

void Manager::repeat(Id& id, const Mad& mad) {
  id.repeated = {.mad = mad, .tries_left = kTries, .next = options_.clock() + kAgainAfter};
  send(mad, id);
}

void Manager::tick() {
  const auto now = options_.clock();
  for (auto& [number, id] : ids_) {
    if (id->state == State::kResolving) wait_for_address(*id, now);
    if (id->repeated.next <= now) repeat_again(*id, now);
    if (id->waits_until > now) continue;
    id->waits_until = util::kNever;
    tell(*id, EventType::kTimeWaitExit);
  }
  if (options_.is_gone && now - looked_for_gone_ >= kLookForGone) look_for_the_gone(now);
}

void Manager::end_connection(Id& id) {
  settle(id);
  id.state = State::kOver;
  id.waits_until = options_.clock() + std::chrono::duration_cast<util::Duration>(kTimeWait);
  tell_connection(id, EventType::kDisconnected, 0, {});
}

/// The kernel of a process that is killed says that its connections have ended. Here nobody does.
void Manager::look_for_the_gone(util::Time now) {
  looked_for_gone_ = now;
  for (auto& [number, id] : ids_) {
    const bool asks = id->state == State::kReqSent;
    // Who has not heard an RTU yet is told at the end of its repetitions, as by Linux.
    const bool connected = id->state == State::kEstablished;
    if ((!asks && !connected) || is_datagram(*id) || !options_.is_gone(*id->peer)) continue;
    settle(*id);
    id->state = State::kOver;
    tell(*id, asks ? EventType::kRejected : EventType::kDisconnected, asks ? kConsumerReject : 0);
  }
}

util::Time Manager::next_tick() const {
  auto next = util::kNever;
  for (const auto& [number, id] : ids_) {
    if (id->state == State::kResolving) next = std::min({next, id->ask_next, id->resolve_until});
    next = std::min({next, id->repeated.next, id->waits_until});
  }
  return next;
}

void Manager::repeat_again(Id& id, util::Time now) {
  if (id.repeated.tries_left-- != 0) {
    id.repeated.next = now + kAgainAfter;
    return send(id.repeated.mad, id);
  }
  settle(id);
  const bool was_request = id.state == State::kReqSent;
  const bool was_end = id.state == State::kDreqSent;
  id.state = State::kOver;
  tell(id,
       was_end       ? EventType::kDisconnected
       : was_request ? EventType::kUnreachable
                     : EventType::kConnectError,
       was_end ? 0 : -ETIMEDOUT);
}

void Manager::drop_closed() {
  std::erase_if(channels_, [this](const auto& channel) {
    if (!channel->closed()) return false;
    std::vector<std::uint32_t> its;
    for (const auto& [number, id] : ids_) {
      if (id->channel == channel.get()) its.push_back(number);
    }
    for (const auto number : its) erase(number);
    return true;
  });
}

void Manager::disconnect_all() {
  while (!ids_.empty()) erase(ids_.begin()->first);
}

Event Manager::event_of(const Id& id, EventType type, std::int32_t status) const {
  Event event;
  event.counted_for = id.number;
  event.content.uid = id.uid;
  event.content.id = id.number;
  event.content.event = static_cast<std::uint32_t>(type);
  event.content.status = static_cast<std::uint32_t>(status);
  return event;
}

void Manager::tell(const Id& id, EventType type, std::int32_t status) {
  // The program does not know of it before it has accepted.
  if (id.uid != 0) id.channel->push(event_of(id, type, status));
}

void Manager::tell_connection(const Id& id, EventType type, std::int32_t status,
                              Bytes private_data) {
  if (id.uid == 0) return;
  auto event = event_of(id, type, status);
  auto& param = event.content.param.conn;
  param.responder_resources = id.responder_resources;
  param.initiator_depth = id.initiator_depth;
  param.qp_num = id.remote_qpn;
  param.private_data_len = static_cast<std::uint8_t>(private_data.size());
  std::ranges::copy(private_data, std::as_writable_bytes(std::span(param.private_data)).begin());
  id.channel->push(event);
}

}  // namespace softhca::rdma_cm

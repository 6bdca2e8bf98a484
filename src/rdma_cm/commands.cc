// The commands of the device file (host-door contract 8.1, 8.2), each a structure of
// rdma_user_cm.h.
#include <endian.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"
#include "util/log.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::uint16_t kFamilyIb = 27;  // AF_IB
constexpr std::size_t kCommandMax = 512;
constexpr auto kAskAgainAfter = std::chrono::milliseconds(300);
constexpr std::uint32_t kDefaultQkey = 0x01234567;  ///< RDMA_UDP_QKEY of the kernel

SocketAddress address_of(const __kernel_sockaddr_storage& from) {
  SocketAddress to;
  static_assert(sizeof to.storage == sizeof from);
  std::memcpy(&to.storage, &from, sizeof from);
  return to;
}

/// sockaddr_ib of <infiniband/ib.h>.
struct IbAddress {
  std::uint16_t family, pkey;
  std::uint32_t flow_info;
  std::uint8_t gid[16];
  std::uint64_t service, service_mask, scope;
};

void store(__kernel_sockaddr_storage& to, const driver::Gid& gid) {
  IbAddress address{};
  address.family = kFamilyIb;
  address.pkey = kDefaultPkey;
  std::memcpy(address.gid, gid.bytes.data(), gid.bytes.size());
  std::memcpy(&to, &address, sizeof address);
}

/// RDMA_USER_CM_CMD_WRITE_CM_EVENT and its structure rdma_ucm_write_cm_event, of headers newer than
/// Debian 12's. Behind `arg` there is room for what no such event has.
constexpr std::uint32_t kWriteEvent = 24;
struct WrittenEvent {
  std::uint32_t id, reserved, event, status;
  std::uint64_t arg;
};
static_assert(sizeof(WrittenEvent) == 24);

/// SA PathRecord (IBTA 15.2.5.16), big-endian.
struct PathRecord {
  std::uint64_t service;
  std::uint8_t dgid[16], sgid[16];
  std::uint16_t dlid, slid;
  std::uint32_t flow_label_hop_limit;
  std::uint8_t traffic_class, reversible;
  std::uint16_t pkey, service_level;
  std::uint8_t mtu, rate, packet_lifetime, preference, reserved[6];
};
static_assert(sizeof(PathRecord) == 64);

}  // namespace

struct Manager::Command {
  std::uint32_t number;
  std::uint16_t in;  ///< bytes that it has at least
  Errno (Manager::*serve)(Channel&, Bytes);
};

Errno Manager::serve(Channel& channel, std::uint64_t address, std::size_t size,
                     const std::function<Channel*(int)>& other) {
  static constexpr Command kCommands[] = {
      {RDMA_USER_CM_CMD_CREATE_ID, 24, &Manager::create_id},
      {RDMA_USER_CM_CMD_DESTROY_ID, 16, &Manager::destroy_id},
      {RDMA_USER_CM_CMD_BIND, 136, &Manager::bind},
      {RDMA_USER_CM_CMD_RESOLVE_ADDR, 272, &Manager::resolve_addr},
      {RDMA_USER_CM_CMD_RESOLVE_ROUTE, 8, &Manager::resolve_route},
      {RDMA_USER_CM_CMD_QUERY, 16, &Manager::query},
      {RDMA_USER_CM_CMD_CONNECT, 280, &Manager::connect},
      {RDMA_USER_CM_CMD_LISTEN, 8, &Manager::listen},
      {RDMA_USER_CM_CMD_ACCEPT, 288, &Manager::accept},
      {RDMA_USER_CM_CMD_REJECT, 264, &Manager::reject},
      {RDMA_USER_CM_CMD_DISCONNECT, 4, &Manager::disconnect},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, 16, &Manager::init_qp_attr},
      {RDMA_USER_CM_CMD_GET_EVENT, 8, &Manager::get_event},
      {RDMA_USER_CM_CMD_SET_OPTION, 24, &Manager::set_option},
      {RDMA_USER_CM_CMD_NOTIFY, 8, &Manager::notify},
      {RDMA_USER_CM_CMD_MIGRATE_ID, 16, &Manager::migrate_id},
      {RDMA_USER_CM_CMD_JOIN_IP_MCAST, 48, &Manager::join_ip_multicast},
      {RDMA_USER_CM_CMD_JOIN_MCAST, 152, &Manager::join_multicast},
      {RDMA_USER_CM_CMD_LEAVE_MCAST, 16, &Manager::leave_multicast},
      {kWriteEvent, sizeof(WrittenEvent), &Manager::write_event},
  };
  rdma_ucm_cmd_hdr header{};
  if (size < sizeof header) return EINVAL;
  if (!memory_.read(address, std::as_writable_bytes(std::span(&header, 1)))) return EFAULT;
  if (header.in > size - sizeof header || header.in > kCommandMax) return EINVAL;
  std::array<std::byte, kCommandMax> bytes{};
  const auto in = std::span(bytes).first(header.in);
  if (!memory_.read(address + sizeof header, in)) return EFAULT;
  const auto* command = std::ranges::find(kCommands, header.cmd, &Command::number);
  if (command == std::end(kCommands)) return ENOSYS;
  if (in.size() < command->in) return EINVAL;
  other_ = &other;
  const auto wrong = (this->*command->serve)(channel, in);
  if (wrong != 0 && wrong != EAGAIN) {
    util::log(util::LogLevel::kDebug, "rdma_cm: command {}: {}", header.cmd,
              std::generic_category().message(wrong));
  }
  return wrong;
}

Manager::Id* Manager::find(const Channel& channel, std::uint32_t number) {
  const auto at = ids_.find(number);
  return at != ids_.end() && at->second->channel == &channel ? at->second.get() : nullptr;
}

Identifier& Manager::make(Channel& channel) {
  auto id = std::make_unique<Id>();
  id->number = ++last_number_;
  id->channel = &channel;
  id->local_comm_id = comm_id_base_ + id->number;
  id->qkey = kDefaultQkey;
  id->local = local_for(driver::Gid::from_ipv4(0, 0, 0, 0), 0);
  (void)!::getrandom(&id->local_psn, 3, GRND_NONBLOCK);
  return *ids_.emplace(id->number, std::move(id)).first->second;
}

Errno Manager::create_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_create_id>(in);
  if (command.ps != RDMA_PS_TCP && command.ps != RDMA_PS_UDP && command.ps != RDMA_PS_IB &&
      command.ps != RDMA_PS_IPOIB) {
    return EINVAL;
  }
  auto& id = make(channel);
  id.uid = command.uid;
  id.port_space = command.ps;
  id.qp_type = command.qp_type;
  return answer(command.response, rdma_ucm_create_id_resp{.id = id.number});
}

/// What nobody has read of it goes. Returns how many events were read.
std::uint32_t Manager::drop_events(Id& id) {
  std::vector<std::uint32_t> refused;
  id.channel->remove_if([&](const Event& event) { return event.counted_for == id.number; },
                        [&](const Event& event) {
                          if (event.type() == EventType::kConnectRequest) {
                            refused.push_back(event.content.id);
                          }
                        });
  for (const auto number : refused) erase(number);
  return id.events_read;
}

void Manager::erase(std::uint32_t number) {
  const auto at = ids_.find(number);
  if (at == ids_.end()) return;
  auto& id = *at->second;
  if (id.state == State::kReqReceived || id.state == State::kRepReceived) {
    if (is_datagram(id)) {
      send_sidr_reply(id, kSidrRejected, {});
    } else {
      send_reject(id, kConsumerReject, {});
    }
  } else if (id.state == State::kEstablished || id.state == State::kRepSent) {
    if (!is_datagram(id)) send_disconnect(id);
  }
  if (id.state == State::kListening) {
    const auto now = options_.clock();
    std::erase_if(left_, [&](const auto& one) { return now - one.second >= kListenAgain; });
    left_[service_of(id.port_space, id.source.port())] = now;
  }
  leave_port(id);
  std::erase_if(memberships_, [&](const Membership& member) { return member.id == number; });
  ids_.erase(at);
}

Errno Manager::destroy_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_destroy_id>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  const rdma_ucm_destroy_id_resp out{.events_reported = drop_events(*id)};
  erase(id->number);
  return answer(command.response, out);
}

Errno Manager::bind(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_bind>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  const auto address = address_of(command.addr);
  // The library asks whether such addresses are known, and uses IP.
  if (address.family() == kFamilyIb) return 0;
  if (address.size() == 0 || command.addr_size < address.size()) return EINVAL;
  if (id->state != State::kIdle || id->owns_port) return EINVAL;
  const auto own = find_local(address.gid());
  if (!address.is_any() && !own && !options_.is_local(address)) return EADDRNOTAVAIL;
  id->source = address;
  if (address.family() == AF_INET) id->one_family = true;
  id->bound = own.has_value();
  if (own) id->local = *own;
  if (const auto wrong = take_port(*id); wrong != 0) return wrong;
  id->has_device = !address.is_any();
  return 0;
}

/// Where its messages are to go: a member, or who has the port on this machine. Nobody there
/// answers that there is no such service.
std::optional<driver::Gid> Manager::resolve(const Id& id) const {
  const auto gid = id.destination.gid();
  if (id.destination.is_multicast() || options_.is_member(gid)) return gid;
  if (!id.destination.is_any() && !options_.is_local(id.destination)) return std::nullopt;
  return options_.port_numbers.find(id.port_space, id.destination.port()).value_or(id.local.gid);
}

/// An address that the machine has, and no device: 127.0.0.1, for one.
bool Manager::is_to_this_machine(const Id& id) const {
  return !id.destination.is_any() && !id.destination.is_multicast() &&
         !options_.is_member(id.destination.gid()) && options_.is_local(id.destination);
}

/// As which the other end is to see us: who connects to an address of the machine comes from it.
driver::Gid Manager::source_of(const Id& id) const {
  return is_to_this_machine(id) ? id.source.gid() : id.local.gid;
}

/// And itself.
driver::Gid Manager::target_of(const Id& id) const {
  return is_to_this_machine(id) ? id.destination.gid() : *id.peer;
}

Errno Manager::resolve_addr(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_resolve_addr>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  const auto destination = address_of(command.dst_addr);
  if (destination.size() == 0 || command.dst_size < destination.size()) return EINVAL;
  if (id->state != State::kIdle) return EINVAL;
  id->destination = destination;
  if (const auto source = address_of(command.src_addr); !id->bound && source.size() != 0) {
    // The library tells here what it has not bound to; an address of the host says nothing.
    if (const auto own = find_local(source.gid())) {
      id->local = *own;
      id->bound = true;
      const auto port = id->source.port();
      id->source = source;
      if (port != 0) id->source.set_port(port);
    }
  }
  if (const auto peer = resolve(*id)) return be_resolved(*id, *peer);
  if (!options_.ask) {
    tell(*id, EventType::kAddrError, -ENETUNREACH);
    return 0;
  }
  id->state = State::kResolving;
  id->resolve_until = options_.clock() + std::chrono::milliseconds(command.timeout_ms);
  ask(*id);
  return 0;
}

Errno Manager::be_resolved(Id& id, const driver::Gid& peer) {
  id.peer = peer;
  id.path_mtu = path_mtu(peer);
  if (!id.bound) id.local = local_for(peer, id.local.port);
  if (id.source.size() == 0 || id.source.is_any()) {
    const auto port = id.source.port();
    id.source =
        SocketAddress::of(is_to_this_machine(id) ? id.destination.gid() : id.local.gid, port);
  }
  if (!id.owns_port) {
    if (const auto wrong = take_port(id); wrong != 0) return wrong;
  }
  id.has_device = true;
  id.state = State::kResolved;
  tell(id, EventType::kAddrResolved);
  return 0;
}

void Manager::ask(Id& id) {
  id.ask_next = options_.clock() + kAskAgainAfter;
  options_.ask(id.destination.gid());
}

/// Looks whether the answer has come.
void Manager::wait_for_address(Id& id, util::Time now) {
  const auto gid = id.destination.gid();
  Errno wrong = 0;
  if (options_.is_member(gid)) {
    id.state = State::kIdle;
    wrong = be_resolved(id, gid);
  } else if (now >= id.resolve_until) {
    id.state = State::kIdle;
    wrong = ETIMEDOUT;
  } else if (now >= id.ask_next) {
    ask(id);
  }
  if (wrong != 0) tell(id, EventType::kAddrError, -wrong);
}

Errno Manager::resolve_route(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_resolve_route>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (id->state != State::kResolved) return EINVAL;
  tell(*id, EventType::kRouteResolved);
  return 0;
}

/// What a program, or librdmacm for it (rdma_resolve_addrinfo), wants to find among the events of
/// an identifier.
Errno Manager::write_event(Channel& channel, Bytes in) {
  const auto command = take<WrittenEvent>(in);
  const auto type = static_cast<EventType>(command.event);
  if (type != EventType::kUser && type != EventType::kInternal) return EINVAL;
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  auto event = event_of(*id, type, static_cast<std::int32_t>(command.status));
  std::memcpy(&event.content.param, &command.arg, sizeof command.arg);
  channel.push(event);
  return 0;
}

Errno Manager::query(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_query>(in);
  auto* id = find(channel, command.id);
  if (id == nullptr) return ENOENT;
  if (command.option == RDMA_USER_CM_QUERY_PATH) {
    struct {
      std::uint32_t count = 0, reserved = 0;
      std::uint32_t flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL, reserved2 = 0;
      PathRecord path{};
    } out;
    if (id->peer) {
      out.count = 1;
      std::ranges::copy(id->peer->bytes, reinterpret_cast<std::byte*>(out.path.dgid));
      std::ranges::copy(id->local.gid.bytes, reinterpret_cast<std::byte*>(out.path.sgid));
      out.path.flow_label_hop_limit = htobe32(kHopLimit);
      out.path.reversible = 0x81;
      out.path.pkey = kDefaultPkey;
      constexpr std::uint8_t kExactly = 0x80, kLifetime = 16;
      out.path.mtu = static_cast<std::uint8_t>(kExactly | id->path_mtu);
      out.path.rate = kExactly | kRate100Gb;
      out.path.packet_lifetime = kExactly | kLifetime;
    }
    return answer(command.response, out);
  }
  if (command.option > RDMA_USER_CM_QUERY_GID) return ENOSYS;
  rdma_ucm_query_addr_resp out{};
  if (id->has_device) {
    out.node_guid = htobe64(guid_of(*id));
    out.port_num = 1;
    out.pkey = kDefaultPkey;
  }
  out.ibdev_index = UINT32_MAX;  // the library finds the device by its GUID
  if (command.option == RDMA_USER_CM_QUERY_GID) {
    out.src_size = out.dst_size = sizeof(IbAddress);
    store(out.src_addr, id->has_device ? id->local.gid : driver::Gid{});
    store(out.dst_addr, id->peer.value_or(driver::Gid{}));
  } else {
    out.src_size = id->source.size();
    out.dst_size = id->destination.size();
    std::memcpy(&out.src_addr, &id->source.storage, sizeof out.src_addr);
    std::memcpy(&out.dst_addr, &id->destination.storage, sizeof out.dst_addr);
  }
  return answer(command.response, out);
}

}  // namespace softhca::rdma_cm

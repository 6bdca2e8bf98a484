// The commands of the device file (kernel interface 8.1, 8.2), each a structure of
// rdma_user_cm.h. This file has the table of all commands, and serves those of identifiers and
// events.
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>

#include "rdma_cm/manager.h"
#include "rdma_cm/message.h"
#include "util/log.h"

namespace softhca::rdma_cm {
namespace {

constexpr std::size_t kCommandMax = sizeof(rdma_ucm_accept);

void store(__kernel_sockaddr_storage& to, const driver::Gid& gid) {
  IbAddress address{};
  address.family = kFamilyIb;
  address.pkey = kDefaultPkey;
  std::memcpy(address.gid, gid.bytes.data(), gid.bytes.size());
  std::memcpy(&to, &address, sizeof address);
}

// Sizes of the answers to Linux's oldest librdmacm, which are shorter than today's.
constexpr std::uint16_t kId = sizeof(rdma_ucm_create_id_resp);
constexpr std::uint16_t kCount = sizeof(rdma_ucm_destroy_id_resp);
constexpr std::size_t kPathHeader = offsetof(rdma_ucm_query_path_resp, path_data);
constexpr std::uint16_t kAddresses = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
constexpr std::uint16_t kEvent = sizeof(rdma_ucm_event_resp) -
                                 sizeof(rdma_ucm_event_resp::reserved) -
                                 sizeof(rdma_ucm_event_resp::ece);

/// RDMA_USER_CM_CMD_WRITE_CM_EVENT and its rdma_ucm_write_cm_event, from headers newer than Debian
/// 12's. The rest of the real union after `arg` is not needed here.
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
  std::uint16_t size;  ///< of its structure
  std::uint16_t out;   ///< minimum size of the answer; 0: none, or checked later
  Errno (Manager::*serve)(Channel&, Bytes);
  std::uint16_t size_min = 0;  ///< of the structure in the header; 0: the header is not asked
};

/// The checks of ucma_write() and of its commands, in their order. Linux reads a structure that is
/// longer than the call from the memory behind it; here the missing bytes are 0.
Errno Manager::serve(Channel& channel, std::uint64_t address, std::size_t size,
                     const std::function<Channel*(int)>& other, util::Time now) {
  static constexpr Command kCommands[] = {
      {RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id), kId, &Manager::create_id},
      {RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id), kCount, &Manager::destroy_id},
      {RDMA_USER_CM_CMD_BIND, sizeof(rdma_ucm_bind), 0, &Manager::bind},
      {RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(rdma_ucm_resolve_addr), 0, &Manager::resolve_addr},
      {RDMA_USER_CM_CMD_RESOLVE_ROUTE, sizeof(rdma_ucm_resolve_route), 0, &Manager::resolve_route},
      {RDMA_USER_CM_CMD_QUERY, sizeof(rdma_ucm_query), 0, &Manager::query},
      {RDMA_USER_CM_CMD_CONNECT, sizeof(rdma_ucm_connect), 0, &Manager::connect,
       offsetof(rdma_ucm_connect, ece)},
      {RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen), 0, &Manager::listen},
      {RDMA_USER_CM_CMD_ACCEPT, sizeof(rdma_ucm_accept), 0, &Manager::accept,
       offsetof(rdma_ucm_accept, ece)},
      {RDMA_USER_CM_CMD_REJECT, sizeof(rdma_ucm_reject), 0, &Manager::reject},
      {RDMA_USER_CM_CMD_DISCONNECT, sizeof(rdma_ucm_disconnect), 0, &Manager::disconnect},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(rdma_ucm_init_qp_attr), sizeof(ib_uverbs_qp_attr),
       &Manager::init_qp_attr},
      {RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event), kEvent, &Manager::get_event},
      {RDMA_USER_CM_CMD_SET_OPTION, sizeof(rdma_ucm_set_option), 0, &Manager::set_option},
      {RDMA_USER_CM_CMD_NOTIFY, sizeof(rdma_ucm_notify), 0, &Manager::notify},
      {RDMA_USER_CM_CMD_MIGRATE_ID, sizeof(rdma_ucm_migrate_id), 0, &Manager::migrate_id},
      {RDMA_USER_CM_CMD_JOIN_IP_MCAST, sizeof(rdma_ucm_join_ip_mcast), 0,
       &Manager::join_ip_multicast},
      {RDMA_USER_CM_CMD_JOIN_MCAST, sizeof(rdma_ucm_join_mcast), 0, &Manager::join_multicast},
      {RDMA_USER_CM_CMD_LEAVE_MCAST, sizeof(rdma_ucm_destroy_id), kCount,
       &Manager::leave_multicast},
      {kWriteEvent, sizeof(WrittenEvent), 0, &Manager::write_event},
  };
  rdma_ucm_cmd_hdr header{};
  if (size < sizeof header) return EINVAL;
  if (!memory_.read(address, std::as_writable_bytes(std::span(&header, 1)))) return EFAULT;
  const auto* command = std::ranges::find(kCommands, header.cmd, &Command::number);
  const bool exists = command != std::end(kCommands);
  if (!exists && header.cmd > RDMA_USER_CM_CMD_JOIN_MCAST) return EINVAL;
  if (header.in > size - sizeof header) return EINVAL;
  if (!exists) return ENOSYS;
  if (header.out < command->out) return ENOSPC;
  if (header.in < command->size_min) return EINVAL;
  std::array<std::byte, kCommandMax> bytes{};
  const auto given = command->size_min == 0 ? size - sizeof header : header.in;
  const auto in = std::span(bytes).first(std::min<std::size_t>(command->size, given));
  if (!memory_.read(address + sizeof header, in)) return EFAULT;
  room_ = header.out;
  other_ = &other;
  now_ = now;
  const auto wrong = (this->*command->serve)(channel, in);
  if (wrong != 0 && wrong != EAGAIN) {
    util::log(util::LogLevel::kDebug, "rdma_cm: command {}: {}", header.cmd,
              std::generic_category().message(wrong));
  }
  return wrong;
}

namespace {

/// ucma_get_qp_type of Linux: the program chooses the type in RDMA_PS_IB only. Nothing: there is no
/// such port space.
std::optional<std::uint8_t> qp_type_of(const rdma_ucm_create_id& command) {
  switch (command.ps) {
    case RDMA_PS_TCP:
      return IB_UVERBS_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IB_UVERBS_QPT_UD;
    case RDMA_PS_IB:
      return command.qp_type;
    default:
      return std::nullopt;
  }
}

}  // namespace

Errno Manager::create_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_create_id>(in);
  const auto qp_type = qp_type_of(command);
  if (!qp_type) return EINVAL;
  auto& id = identifiers_.make(channel, ports_->default_local());
  id.uid = command.uid;
  id.port_space = command.ps;
  id.qp_type = *qp_type;
  const auto wrong = answer(command.response, rdma_ucm_create_id_resp{.id = id.number});
  if (wrong != 0) erase(id.number);
  return wrong;
}

/// Drops its unread events. Returns how many events were read.
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
  auto* const id = identifiers_.find(number);
  if (id == nullptr) return;
  connections_.say_goodbye(*id, now_);
  bindings_.release(*id, now_);
  std::erase_if(memberships_, [&](const Membership& member) { return member.id == number; });
  identifiers_.erase(*id);
}

Errno Manager::destroy_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_destroy_id>(in);
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  const rdma_ucm_destroy_id_resp out{.events_reported = drop_events(*id)};
  erase(id->number);
  return answer(command.response, out);
}

/// Queues an event that the program, or librdmacm on its behalf (rdma_resolve_addrinfo), wants to
/// receive on an identifier.
Errno Manager::write_event(Channel& channel, Bytes in) {
  const auto command = take<WrittenEvent>(in);
  const auto type = static_cast<EventType>(command.event);
  if (type != EventType::kUser && type != EventType::kInternal) return EINVAL;
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  auto event = event_of(*id, type, static_cast<std::int32_t>(command.status));
  std::memcpy(&event.content.param, &command.arg, sizeof command.arg);
  channel.push(event);
  return 0;
}

Errno Manager::query_path(const Id& id, std::uint64_t response) {
  if (room_ < kPathHeader) return ENOSPC;
  struct {
    std::uint32_t count = 0, reserved = 0;
    std::uint32_t flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL, reserved2 = 0;
    PathRecord path{};
  } out;
  if (id.has_path) {
    out.count = 1;
    std::ranges::copy(id.peer->bytes, reinterpret_cast<std::byte*>(out.path.dgid));
    std::ranges::copy(id.local.gid.bytes, reinterpret_cast<std::byte*>(out.path.sgid));
    out.path.flow_label_hop_limit = htobe32(id.path.flow_label << 8 | kHopLimit);
    out.path.traffic_class = id.path.traffic_class;
    out.path.reversible = 0x81;
    out.path.pkey = kDefaultPkey;
    constexpr std::uint8_t kExactly = 0x80;
    out.path.mtu = static_cast<std::uint8_t>(kExactly | id.path.mtu);
    out.path.rate = kExactly | kRate100Gb;
    out.path.packet_lifetime = kExactly | kPacketLifetime;
  }
  return answer(response, out);
}

Errno Manager::query(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_query>(in);
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(channel, command.id, id); wrong != 0) return wrong;
  if (command.option == RDMA_USER_CM_QUERY_PATH) return query_path(*id, command.response);
  if (command.option > RDMA_USER_CM_QUERY_GID) return ENOSYS;
  if (room_ < kAddresses) return ENOSPC;
  rdma_ucm_query_addr_resp out{};
  if (id->has_device) {
    out.node_guid = htobe64(ports_->node_guid(*id));
    out.port_num = 1;
  }
  out.ibdev_index = UINT32_MAX;  // librdmacm finds the device by its GUID
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

/// If the program's buffer is not writable, the event stays queued.
Errno Manager::get_event(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_get_event>(in);
  const auto* const event = channel.front();
  if (event == nullptr) return EAGAIN;
  if (const auto wrong = answer(command.response, event->content); wrong != 0) return wrong;
  if (auto* const owner = identifiers_.find(event->counted_for); owner != nullptr) {
    ++owner->events_read;
    if (event->type() == EventType::kConnectRequest) ++owner->backlog;
  }
  const auto member = std::ranges::find(memberships_, event->membership, &Membership::number);
  if (member != memberships_.end()) ++member->events_read;
  (void)channel.pop();
  return 0;
}

/// Moves an identifier with its unread events. The identifier of an unread request stays on the
/// channel that received the request, so the program cannot accept it on the new one
/// (ucma_migrate_id).
Errno Manager::migrate_id(Channel& channel, Bytes in) {
  const auto command = take<rdma_ucm_migrate_id>(in);
  const int fd = static_cast<int>(command.fd);
  auto* before = (*other_)(fd);
  if (before == nullptr) return ::fcntl(fd, F_GETFD) < 0 ? ENOENT : EINVAL;
  Id* id = nullptr;
  if (const auto wrong = identifiers_.find(*before, command.id, id); wrong != 0) return wrong;
  id->channel = &channel;
  if (before != &channel) {
    before->remove_if([&](const Event& event) { return event.counted_for == id->number; },
                      [&](const Event& event) { channel.push(event); });
  }
  const rdma_ucm_migrate_resp out{.events_reported = id->events_read};
  const bool written = memory_.write(command.response, std::as_bytes(std::span(&out, 1)));
  return written ? 0 : EFAULT;
}

}  // namespace softhca::rdma_cm

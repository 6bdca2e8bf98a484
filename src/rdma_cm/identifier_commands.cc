#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "cm/message.h"
#include "rdma_cm/commands.h"
#include "rdma_cm/events.h"
#include "rdma_cm/written_event.h"
#include "spec/infiniband/mad.h"

namespace softhca::rdma_cm {
namespace {

void store(__kernel_sockaddr_storage& to, const driver::Gid& gid) {
  IbAddress address{};
  address.family = kFamilyIb;
  address.pkey = spec::kDefaultPkey;
  std::memcpy(address.gid, gid.bytes.data(), gid.bytes.size());
  std::memcpy(&to, &address, sizeof address);
}

// Sizes of the shortest answers that Linux gives to a query.
constexpr std::size_t kPathHeader = offsetof(rdma_ucm_query_path_resp, path_data);
constexpr std::uint16_t kAddresses = offsetof(rdma_ucm_query_addr_resp, ibdev_index);

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

Errno IdentifierCommands::create_id(const Call& call) {
  const auto command = take<rdma_ucm_create_id>(call.in);
  const auto qp_type = qp_type_of(command);
  if (!qp_type) return EINVAL;
  auto& id = identifiers_.make(call.channel, ports_.default_local());
  id.uid = command.uid;
  id.port_space = command.ps;
  id.connection.qp_type = *qp_type;
  const auto wrong = call.answer(command.response, rdma_ucm_create_id_resp{.id = id.number});
  if (wrong != 0) erase(id.number, call.now);
  return wrong;
}

/// Drops its unread events. Returns how many events were read.
std::uint32_t IdentifierCommands::drop_events(Identifier& id, util::Time now) {
  std::vector<std::uint32_t> refused;
  id.channel->remove_if([&](const Event& event) { return event.counted_for == id.number; },
                        [&](const Event& event) {
                          if (event.type() == EventType::kConnectRequest) {
                            refused.push_back(event.content.id);
                          }
                        });
  for (const auto number : refused) erase(number, now);
  return id.events_read;
}

void IdentifierCommands::erase(std::uint32_t number, util::Time now) {
  auto* const id = identifiers_.find(number);
  if (id == nullptr) return;
  connections_.say_goodbye(id->connection, now);
  bindings_.release(*id, now);
  memberships_.forget(number);
  identifiers_.erase(*id);
}

Errno IdentifierCommands::destroy_id(const Call& call) {
  const auto command = take<rdma_ucm_destroy_id>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  const rdma_ucm_destroy_id_resp out{.events_reported = drop_events(*id, call.now)};
  erase(id->number, call.now);
  return call.answer(command.response, out);
}

/// Queues an event that the program, or librdmacm on its behalf (rdma_resolve_addrinfo), wants to
/// receive on an identifier.
Errno IdentifierCommands::write_event(const Call& call) {
  const auto command = take<WrittenEvent>(call.in);
  const auto type = static_cast<EventType>(command.event);
  if (type != EventType::kUser && type != EventType::kInternal) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  auto event = event_of(*id, type, static_cast<std::int32_t>(command.status));
  std::memcpy(&event.content.param, &command.arg, sizeof command.arg);
  call.channel.push(event);
  return 0;
}

Errno IdentifierCommands::query_path(const Call& call, const Identifier& id,
                                     std::uint64_t response) const {
  if (call.room < kPathHeader) return ENOSPC;
  struct {
    std::uint32_t count = 0, reserved = 0;
    std::uint32_t flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL, reserved2 = 0;
    std::array<std::byte, spec::path_record::kSize> path{};
  } out;
  if (id.route.has_path) {
    out.count = 1;
    using Record = spec::path_record;
    const util::MutableView<Record> path(out.path);
    std::ranges::copy(id.connection.peer->bytes, path.sub(Record::dgid).begin());
    std::ranges::copy(id.connection.local.gid.bytes, path.sub(Record::sgid).begin());
    path.set(Record::flow_label, id.connection.path.flow_label);
    path.set(Record::hop_limit, cm::kHopLimit);
    path.set(Record::tclass, id.connection.path.traffic_class);
    path.set(Record::reversible, 1);
    path.set(Record::numb_path, 1);
    path.set(Record::p_key, spec::kDefaultPkey);
    constexpr std::uint32_t kExactly = 2;
    path.set(Record::mtu_selector, kExactly);
    path.set(Record::mtu, id.connection.path.mtu);
    path.set(Record::rate_selector, kExactly);
    path.set(Record::rate, cm::kRate100Gb);
    path.set(Record::life_selector, kExactly);
    path.set(Record::life, cm::kPacketLifetime);
  }
  return call.answer(response, out);
}

Errno IdentifierCommands::query(const Call& call) {
  const auto command = take<rdma_ucm_query>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (command.option == RDMA_USER_CM_QUERY_PATH) return query_path(call, *id, command.response);
  if (command.option > RDMA_USER_CM_QUERY_GID) return ENOSYS;
  if (call.room < kAddresses) return ENOSPC;
  rdma_ucm_query_addr_resp out{};
  if (id->has_device) {
    out.node_guid = htobe64(ports_.node_guid(id->connection.local.port));
    out.port_num = 1;
  }
  out.ibdev_index = UINT32_MAX;  // librdmacm finds the device by its GUID
  if (command.option == RDMA_USER_CM_QUERY_GID) {
    out.src_size = out.dst_size = sizeof(IbAddress);
    store(out.src_addr, id->has_device ? id->connection.local.gid : driver::Gid{});
    store(out.dst_addr, id->connection.peer.value_or(driver::Gid{}));
  } else {
    out.src_size = id->source.size();
    out.dst_size = id->destination.size();
    std::memcpy(&out.src_addr, &id->source.storage, sizeof out.src_addr);
    std::memcpy(&out.dst_addr, &id->destination.storage, sizeof out.dst_addr);
  }
  return call.answer(command.response, out);
}

/// If the program's buffer is not writable, the event stays queued.
Errno IdentifierCommands::get_event(const Call& call) {
  const auto command = take<rdma_ucm_get_event>(call.in);
  const auto* const event = call.channel.front();
  if (event == nullptr) return EAGAIN;
  if (const auto wrong = call.answer(command.response, event->content); wrong != 0) return wrong;
  if (auto* const owner = identifiers_.find(event->counted_for); owner != nullptr) {
    ++owner->events_read;
    if (event->type() == EventType::kConnectRequest) ++owner->backlog;
  }
  if (auto* const member = memberships_.find(event->membership)) ++member->events_read;
  (void)call.channel.pop();
  return 0;
}

/// Moves an identifier with its unread events. The identifier of an unread request stays on the
/// channel that received the request, so the program cannot accept it on the new one
/// (ucma_migrate_id).
Errno IdentifierCommands::migrate_id(const Call& call) {
  const auto command = take<rdma_ucm_migrate_id>(call.in);
  const int fd = static_cast<int>(command.fd);
  auto* before = call.other(fd);
  if (before == nullptr) return ::fcntl(fd, F_GETFD) < 0 ? ENOENT : EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(*before, command.id, id); wrong != 0) return wrong;
  id->channel = &call.channel;
  if (before != &call.channel) {
    before->remove_if([&](const Event& event) { return event.counted_for == id->number; },
                      [&](const Event& event) { call.channel.push(event); });
  }
  const rdma_ucm_migrate_resp out{.events_reported = id->events_read};
  const bool written = call.memory.write(command.response, std::as_bytes(std::span(&out, 1)));
  return written ? 0 : EFAULT;
}

}  // namespace softhca::rdma_cm

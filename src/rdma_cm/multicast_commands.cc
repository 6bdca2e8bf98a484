#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>

#include "cm/message.h"
#include "rdma_cm/commands.h"
#include "rdma_cm/events.h"
#include "rdma_cm/ip_service.h"

namespace softhca::rdma_cm {
namespace {

/// Linux's ENOTSUPP, which errno.h does not define.
constexpr Errno kNotSupported = 524;

}  // namespace

/// The address from which the identifier sends to a group: its own, if it has one already.
cm::LocalAddress MulticastCommands::source_for(const Identifier& id,
                                               const SocketAddress& group) const {
  const auto& local = id.connection.local;
  const bool has_source = id.binding.bound || id.connection.peer;
  return has_source ? local : ports_.local_for(group.gid(), local.port);
}

/// Follows Linux's rdma_join_multicast(). RoCE v2 has no IPv6 groups. An IPv4 address that is no
/// group fails later, when the library attaches the QP.
Errno MulticastCommands::join(const Call& call, std::uint32_t number, std::uint64_t uid,
                              const SocketAddress& group, std::uint64_t response) {
  if (group.size() == 0 || group.family() == kFamilyIb) return EINVAL;
  if (call.room < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, number, id); wrong != 0) return wrong;
  if (!is_datagram(id->connection) || !id->has_device || group.is_any()) return EINVAL;
  if (id->state != State::kIdle && id->state != State::kResolved) return EINVAL;
  if (group.family() == AF_INET6) return kNotSupported;
  const Membership member{.number = identifiers_.next_number(), .id = number, .uid = uid};
  if (const auto wrong = call.answer(response, rdma_ucm_create_id_resp{.id = member.number});
      wrong != 0) {
    return wrong;
  }
  if (id->connection.qp.qkey == 0) id->connection.qp.qkey = kDefaultQkey;
  auto event = event_of(*id, EventType::kMulticastJoin);
  event.membership = member.number;
  event.content.uid = uid;
  event.content.id = member.number;
  auto& param = event.content.param.ud;
  param.qp_num = spec::kMulticastQpn;
  param.qkey = id->connection.qp.qkey;
  std::memcpy(param.ah_attr.grh.dgid, group.gid().bytes.data(), sizeof param.ah_attr.grh.dgid);
  param.ah_attr.grh.sgid_index = source_for(*id, group).gid_index;
  param.ah_attr.grh.hop_limit = cm::kHopLimit;
  param.ah_attr.is_global = 1;
  param.ah_attr.port_num = 1;
  memberships_.add(member);
  call.channel.push(event);
  return 0;
}

Errno MulticastCommands::join_ip_multicast(const Call& call) {
  const auto command = take<rdma_ucm_join_ip_mcast>(call.in);
  SocketAddress group;
  std::memcpy(&group.storage, &command.addr, sizeof command.addr);
  return join(call, command.id, command.uid, group, command.response);
}

Errno MulticastCommands::join_multicast(const Call& call) {
  const auto command = take<rdma_ucm_join_mcast>(call.in);
  if (command.join_flags > RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return EINVAL;
  SocketAddress group;
  std::memcpy(&group.storage, &command.addr, sizeof group.storage);
  if (group.size() == 0 || command.addr_size != group.size()) return EINVAL;
  return join(call, command.id, command.uid, group, command.response);
}

Errno MulticastCommands::leave_multicast(const Call& call) {
  const auto command = take<rdma_ucm_destroy_id>(call.in);
  const auto* const member = memberships_.find(command.id);
  if (member == nullptr) return ENOENT;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, member->id, id); wrong != 0) return wrong;
  const auto number = member->number;
  call.channel.remove_if([&](const Event& event) { return event.membership == number; },
                         [](const Event&) {});
  const rdma_ucm_destroy_id_resp out{.events_reported = member->events_read};
  memberships_.erase(number);
  return call.answer(command.response, out);
}

}  // namespace softhca::rdma_cm

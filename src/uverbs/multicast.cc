#include "uverbs/multicast.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/command_status.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

/// Runs ATTACH_TO_MCG or DETACH_FROM_MCG, whose inputs have the same layout.
template <class In>
Errno change_multicast(QueuePair& qp, const QueuePair::Group& group, command_opcode opcode) {
  if (!group.gid.is_multicast() || qp.type != IB_UVERBS_QPT_UD) return EINVAL;
  Command<In> command(opcode);
  command.set(In::qpn, qp.qpn);
  std::ranges::copy(group.gid.bytes, command.sub(In::multicast_gid).begin());
  return execute_own(qp.device, command.all());
}

QueuePair::Group group_of(const ib_uverbs_attach_mcast& in) {
  QueuePair::Group group{.gid = {}, .lid = in.mlid};
  std::memcpy(group.gid.bytes.data(), in.gid, group.gid.bytes.size());
  return group;
}

}  // namespace

std::span<const WriteCommand<MulticastCommands>> MulticastCommands::write_commands() {
  static constexpr WriteCommand<MulticastCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_ATTACH_MCAST, 24, 0}, &MulticastCommands::attach_mcast},
      {{IB_USER_VERBS_CMD_DETACH_MCAST, 24, 0}, &MulticastCommands::detach_mcast},
  };
  return kCommands;
}

/// Membership counts as a use: a QP in a group cannot be destroyed (ib_attach_mcast).
Errno MulticastCommands::attach_mcast(Request& request) {
  const auto in = request.get<ib_uverbs_attach_mcast>(kCoreIn);
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(in.qp_handle, qp); missing != 0) return missing;
  const auto group = group_of(in);
  if (std::ranges::find(qp->groups, group) != qp->groups.end()) return 0;
  const auto wrong =
      change_multicast<spec::attach_to_mcg_in>(*qp, group, command_opcode::ATTACH_TO_MCG);
  if (wrong == 0) qp->groups.push_back(group);
  return wrong;
}

Errno MulticastCommands::detach_mcast(Request& request) {
  const auto in = request.get<ib_uverbs_attach_mcast>(kCoreIn);
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(in.qp_handle, qp); missing != 0) return missing;
  const auto group = group_of(in);
  const auto at = std::ranges::find(qp->groups, group);
  if (at == qp->groups.end()) return EINVAL;
  qp->groups.erase(at);
  return change_multicast<spec::detach_from_mcg_in>(*qp, group, command_opcode::DETACH_FROM_MCG);
}

}  // namespace softhca::uverbs

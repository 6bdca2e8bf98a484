#include "uverbs/multicast.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/command_status.h"
#include "uverbs/device_command.h"
#include "uverbs/transport_qps.h"

namespace softhca::uverbs {

using spec::command_opcode;

namespace {

/// Runs ATTACH_TO_MCG or DETACH_FROM_MCG, whose inputs have the same layout.
template <class In>
Errno change_multicast(DatagramQp& qp, const MulticastGroup& group, command_opcode opcode) {
  if (!group.gid.is_multicast()) return EINVAL;
  Command<In> command(opcode);
  command.set(In::qpn, qp.qpn);
  std::ranges::copy(group.gid.bytes, command.sub(In::multicast_gid).begin());
  return execute_own(qp.device, command.all());
}

MulticastGroup group_of(const ib_uverbs_attach_mcast& in) {
  MulticastGroup group{.gid = {}, .lid = in.mlid};
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

Errno MulticastCommands::attach_mcast(Request& request) {
  const auto in = request.get<ib_uverbs_attach_mcast>(kCoreIn);
  QueuePair* qp = nullptr;
  const auto missing = file_.objects.find(in.qp_handle, qp);
  return missing != 0 ? missing : qp->attach(group_of(in));
}

Errno MulticastCommands::detach_mcast(Request& request) {
  const auto in = request.get<ib_uverbs_attach_mcast>(kCoreIn);
  QueuePair* qp = nullptr;
  const auto missing = file_.objects.find(in.qp_handle, qp);
  return missing != 0 ? missing : qp->detach(group_of(in));
}

bool DatagramQp::is_busy() const { return users != 0 || !groups_.empty(); }

Errno DatagramQp::attach(const MulticastGroup& group) {
  if (std::ranges::find(groups_, group) != groups_.end()) return 0;
  // Allocations come first: if one fails, the device has not changed.
  groups_.reserve(groups_.empty() ? 1 : std::bit_ceil(groups_.size() + 1));
  note_member(group, true);
  const auto wrong =
      change_multicast<spec::attach_to_mcg_in>(*this, group, command_opcode::ATTACH_TO_MCG);
  if (wrong == 0) {
    groups_.push_back(group);
  } else {
    note_member(group, false);
  }
  return wrong;
}

Errno DatagramQp::detach(const MulticastGroup& group) {
  const auto at = std::ranges::find(groups_, group);
  if (at == groups_.end()) return EINVAL;
  groups_.erase(at);
  const auto wrong =
      change_multicast<spec::detach_from_mcg_in>(*this, group, command_opcode::DETACH_FROM_MCG);
  note_member(group, false);
  return wrong;
}

/// The end of its context takes it out of its groups (destroy_qp()).
DatagramQp::~DatagramQp() {
  for (const auto& group : groups_) note_member(group, false);
}

void DatagramQp::note_member(const MulticastGroup& group, bool joins) const {
  const auto& on_member = device.options().on_member;
  if (on_member) on_member(group.gid, joins);
}

}  // namespace softhca::uverbs

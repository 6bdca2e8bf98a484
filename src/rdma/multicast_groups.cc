#include "rdma/multicast_groups.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace softhca::rdma {

namespace {

/// Cost of finding a group and removing a member, or freeing its memory.
constexpr std::int64_t kGroupWork = 300;

}  // namespace

bool MulticastGroups::attach(Qpn qpn, const Gid& gid) {
  const auto present = members(gid);
  if (std::ranges::find(present, qpn) != present.end()) return false;
  if (present.empty() && groups_.size() >= groups_max_) return false;
  if (present.size() >= members_max_) return false;
  groups_[gid].push_back(qpn);
  joined_[qpn].push_back(gid);
  return true;
}

bool MulticastGroups::detach(Qpn qpn, const Gid& gid) {
  const auto joined = joined_.find(qpn);
  if (joined == joined_.end() || std::erase(joined->second, gid) == 0) return false;
  if (joined->second.empty()) joined_.erase(joined);
  remove(qpn, gid);
  return true;
}

void MulticastGroups::forget(Qpn qpn) {
  const auto joined = joined_.find(qpn);
  if (joined == joined_.end()) return;
  for (const auto& gid : joined->second) remove(qpn, gid);
  joined_.erase(joined);
}

bool MulticastGroups::leave(Qpn qpn, util::WorkBudget& work) {
  const auto joined = joined_.find(qpn);
  if (joined == joined_.end()) return true;
  for (auto& gids = joined->second; !gids.empty(); gids.pop_back()) {
    if (work.spent()) return false;
    remove(qpn, gids.back());
    work.charge(kGroupWork);
  }
  joined_.erase(joined);
  return true;
}

bool MulticastGroups::dismantle(util::WorkBudget& work) {
  for (; !joined_.empty(); joined_.erase(joined_.begin())) {
    if (work.spent()) return false;
    work.charge(kGroupWork);
  }
  for (; !groups_.empty(); groups_.erase(groups_.begin())) {
    if (work.spent()) return false;
    work.charge(kGroupWork);
  }
  return true;
}

std::span<const Qpn> MulticastGroups::members(const Gid& gid) const {
  const auto group = groups_.find(gid);
  return group == groups_.end() ? std::span<const Qpn>() : group->second;
}

void MulticastGroups::remove(Qpn qpn, const Gid& gid) {
  const auto group = groups_.find(gid);
  assert(group != groups_.end());
  std::erase(group->second, qpn);
  if (group->second.empty()) groups_.erase(group);
}

}  // namespace softhca::rdma

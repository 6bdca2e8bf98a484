#include "rdma/multicast_groups.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace softhca::rdma {

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

void MulticastGroups::clear() {
  groups_.clear();
  joined_.clear();
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

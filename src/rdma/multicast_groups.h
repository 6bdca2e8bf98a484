// Membership of QPs in multicast groups (IBTA 10.5.2.1).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "rdma/types.h"
#include "util/work_budget.h"

namespace softhca::rdma {

class MulticastGroups {
 public:
  /// `groups_max`: most groups with members. `members_max`: most members of a group.
  MulticastGroups(std::size_t groups_max, std::size_t members_max)
      : groups_max_(groups_max), members_max_(members_max) {}

  /// False if the QP is already a member, or if the table or the group is full.
  bool attach(Qpn qpn, const Gid& gid);
  /// False if the QP is not a member.
  bool detach(Qpn qpn, const Gid& gid);
  /// Removes the QP from all its groups.
  void forget(Qpn qpn);
  /// Removes the QP from its groups until `work` is spent. True when it is in none.
  bool leave(Qpn qpn, util::WorkBudget& work);
  /// Clears the table until `work` is spent. True when nothing is left.
  bool dismantle(util::WorkBudget& work);

  /// Members in the order in which they joined.
  std::span<const Qpn> members(const Gid& gid) const;
  /// Number of groups with members.
  std::size_t count() const { return groups_.size(); }

 private:
  void remove(Qpn qpn, const Gid& gid);

  const std::size_t groups_max_;
  const std::size_t members_max_;
  std::map<Gid, std::vector<Qpn>> groups_;  ///< no vector is empty
  std::map<Qpn, std::vector<Gid>> joined_;  ///< the inverse, so that no search is needed
};

}  // namespace softhca::rdma

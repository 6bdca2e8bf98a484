// Which QPs take part in which multicast groups (IBTA 10.5.2.1).
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
  /// How many groups may have members, and how many members a group.
  MulticastGroups(std::size_t groups_max, std::size_t members_max)
      : groups_max_(groups_max), members_max_(members_max) {}

  /// False if the QP is a member already, or there is no room for the group or for the member.
  bool attach(Qpn qpn, const Gid& gid);
  /// False if the QP is no member.
  bool detach(Qpn qpn, const Gid& gid);
  /// The QP leaves all its groups.
  void forget(Qpn qpn);
  /// The QP leaves some of its groups, until `work` is spent. True: it is in none.
  bool leave(Qpn qpn, util::WorkBudget& work);
  /// Forgets some of it all, until `work` is spent. True: nothing is left.
  bool dismantle(util::WorkBudget& work);

  /// In the order in which they came.
  std::span<const Qpn> members(const Gid& gid) const;
  /// Groups that have members.
  std::size_t count() const { return groups_.size(); }

 private:
  void remove(Qpn qpn, const Gid& gid);

  const std::size_t groups_max_;
  const std::size_t members_max_;
  std::map<Gid, std::vector<Qpn>> groups_;  ///< none is empty
  std::map<Qpn, std::vector<Gid>> joined_;  ///< the same by QP, so that none has to be looked for
};

}  // namespace softhca::rdma

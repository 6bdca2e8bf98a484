// The shared receive queues that XRC requests address (IBTA Annex A14).
#pragma once

#include <cassert>
#include <cstdint>
#include <map>

#include "rdma/types.h"
#include "util/work_budget.h"

namespace softhca::rdma {

using wire::XrcSrqn;
using XrcDomain = util::Strong<struct XrcDomainTag, std::uint32_t>;

/// The properties of such a queue that an XRC target needs. The device keeps its receive requests.
struct XrcSrq {
  XrcDomain domain;  ///< only targets of this domain may use it
  Pd pd;             ///< checks its receives, and the R_Keys of requests that address it
  /// Distinguishes it from earlier queues with the same number. XrcSrqs sets it.
  std::uint64_t incarnation = 0;
};

class XrcSrqs {
 public:
  /// @pre no queue has this number
  void add(XrcSrqn number, const XrcSrq& srq) {
    const auto [place, added] = srqs_.emplace(number, srq);
    assert(added && "the device hands out each number once");
    place->second.incarnation = ++incarnations_;
  }
  void remove(XrcSrqn number) { srqs_.erase(number); }
  /// Null if no queue has this number.
  const XrcSrq* find(XrcSrqn number) const {
    const auto found = srqs_.find(number);
    return found == srqs_.end() ? nullptr : &found->second;
  }
  /// Tears down the table until `work` is spent. True when no queue is left.
  bool dismantle(util::WorkBudget& work) {
    constexpr std::int64_t kOne = 60;
    for (; !srqs_.empty(); work.charge(kOne)) {
      if (work.spent()) return false;
      srqs_.erase(srqs_.begin());
    }
    return true;
  }

 private:
  std::map<XrcSrqn, XrcSrq> srqs_;
  std::uint64_t incarnations_ = 0;
};

}  // namespace softhca::rdma

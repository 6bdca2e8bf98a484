// The shared receive queues that XRC requests name (IBTA Annex A14).
#pragma once

#include <cassert>
#include <map>

#include "rdma/types.h"

namespace softhca::rdma {

using wire::XrcSrqn;
using XrcDomain = util::Strong<struct XrcDomainTag, std::uint32_t>;

/// What an XRC target must know of such a queue. Its requests themselves are the device's.
struct XrcSrq {
  XrcDomain domain;  ///< only targets of the same domain reach it
  Pd pd;  ///< that its receives, and the R_Keys of requests that name it, are checked with
};

class XrcSrqs {
 public:
  /// @pre no queue has this number
  void add(XrcSrqn number, const XrcSrq& srq) {
    [[maybe_unused]] const bool added = srqs_.emplace(number, srq).second;
    assert(added && "the device hands out each number once");
  }
  void remove(XrcSrqn number) { srqs_.erase(number); }
  /// Null if there is none.
  const XrcSrq* find(XrcSrqn number) const {
    const auto found = srqs_.find(number);
    return found == srqs_.end() ? nullptr : &found->second;
  }

 private:
  std::map<XrcSrqn, XrcSrq> srqs_;
};

}  // namespace softhca::rdma

// All targets of dynamic connections (mlx5 driver interface 7.10).
#pragma once

#include <cstdint>

#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/qp/dct.h"
#include "hca/object_table.h"
#include "rdma/dc_targets.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class Dcts {
 public:
  Dcts(const Dct::Parts& parts, Resources& resources, rdma::DcTargets& targets);

  /// Null if there are too many.
  Dct* add(util::View<Dct::Context> context, Dct::Uses uses);
  /// Null if there is no such DCT.
  Dct* find(Qpn number) { return dcts_.find(number); }
  const hca::ObjectTable<Dct, Qpn>& all() const { return dcts_; }
  /// Makes the DCT accept no more requests. Call it again in later turns until it returns true: all
  /// accepted requests are answered, and the event is posted.
  bool drain(Dct& dct, util::WorkBudget& work);
  /// @pre the DCT is drained
  void remove(Dct& dct);
  /// Number of requests with a wrong key.
  std::uint32_t key_violations(const Dct& dct) const;
  /// Resumes the DCT's connection that waits for a page. False if none waits.
  bool resume(Dct& dct, bool failed) { return targets_.resume(dct.dctn(), failed); }
  /// Destroys DCTs until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  Dct::Parts parts_;
  Resources& resources_;
  rdma::DcTargets& targets_;
  hca::ObjectTable<Dct, Qpn> dcts_;
};

}  // namespace softhca::connectx

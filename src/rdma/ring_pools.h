// The rings that the QPs of a port share, and the limit on the requests in them. Internal.
#pragma once

#include <cstddef>

#include "rdma/answer.h"
#include "rdma/send_entry.h"
#include "rdma/spare_rings.h"
#include "util/budget.h"

namespace softhca::rdma {

/// Outlives the QPs.
class RingPools {
 public:
  /// `requests_max`: see PortOptions.
  explicit RingPools(std::size_t requests_max) : budget(requests_max) {}

  /// True if QPs without a request in flight are to release their rings.
  bool scarce() const { return scarce_; }
  /// Call after a QP took a ring of requests, or gave one back.
  void update();

  /// Send requests that QPs may have in flight besides their first.
  util::Budget budget;
  SpareRings<SendEntry> requests;
  SpareRings<Answer> answers;

 private:
  bool scarce_ = false;
};

}  // namespace softhca::rdma

#include "rdma/retries.h"

#include <algorithm>
#include <utility>

namespace softhca::rdma {

void Retries::refresh_losses(const QpAttributes& attributes) { left_ = attributes.retry_count; }

bool Retries::use() {
  if (left_ == 0) return false;
  --left_;
  return true;
}

bool Retries::use_rnr(const QpAttributes& attributes) {
  if (attributes.rnr_retry == spec::infiniband::kRetryForever) return true;
  if (rnr_left_ == 0) return false;
  --rnr_left_;
  return true;
}

void Retries::set_timeout(const QpAttributes& attributes, util::Duration least) {
  const auto timeout = spec::infiniband::ack_timeout(attributes.ack_timeout);
  timeout_ = timeout ? std::max<util::Duration>(*timeout, least) : util::Duration{};
}

bool Retries::counts_timeout(unsigned patience) {
  if (++waits_ < patience) return false;
  waits_ = 0;
  return true;
}

bool Retries::begin_implied(std::uint64_t psn) { return std::exchange(implied_at_, psn) != psn; }

}  // namespace softhca::rdma

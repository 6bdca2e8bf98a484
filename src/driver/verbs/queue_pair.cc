#include "driver/verbs/queue_pair.h"

#include "spec/infiniband/constants.h"

namespace softhca::driver::verbs {

namespace {

/// Refuses values that do not fit their fields.
util::Result<void> check_values(const QpAttributes& in) {
  using spec::infiniband::kPsnMask;
  using spec::infiniband::kQpnMask;
  if (in.path_mtu && mtu_code(*in.path_mtu) == 0) {
    return util::fail("path MTU: 256, 512, 1024, 2048 or 4096 bytes (IBTA 9.7.6)");
  }
  if (in.timeout.value_or(0) > 31) return util::fail("timeout: 0 to 31 (IBTA 11.2.4.2)");
  if (in.retry_count.value_or(0) > 7 || in.rnr_retry.value_or(0) > 7) {
    return util::fail("retry counts: 0 to 7 (IBTA 11.2.4.2)");
  }
  if (in.min_rnr_timer.value_or(0) > 31) return util::fail("RNR NAK timer: 0 to 31");
  if (in.receive_psn.value_or(0) > kPsnMask || in.send_psn.value_or(0) > kPsnMask) {
    return util::fail("PSNs have 24 bits (IBTA 9.2.2)");
  }
  if (in.destination_qpn.value_or(0) > kQpnMask)
    return util::fail("QPNs have 24 bits (IBTA 9.2.1)");
  return {};
}

}  // namespace

Gid QueuePair::gid(std::uint8_t index) const {
  const auto& gids = node_->pd->device->gids;
  return index < gids.size() ? gids[index] : Gid();
}

util::Result<void> QueuePair::modify(const QpAttributes& attributes) {
  const auto from = attributes.current_state.value_or(node_->state);
  const auto to = attributes.state.value_or(from);
  if (auto wrong = check_transition(node_->type, from, to, attributes.given()); !wrong.empty()) {
    return util::fail(std::move(wrong));
  }
  if (auto good = check_values(attributes); !good) return good;
  auto done = node_->backend->modify(from, to, attributes);
  if (done) node_->state = to;
  return done;
}

util::Result<void> QueuePair::attach(const Gid& group) {
  if (auto has = require(device(), Feature::kMulticast); !has) return has;
  return node_->backend->attach(group);
}

util::Result<void> QueuePair::detach(const Gid& group) {
  if (auto has = require(device(), Feature::kMulticast); !has) return has;
  return node_->backend->detach(group);
}

}  // namespace softhca::driver::verbs

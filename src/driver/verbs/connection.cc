#include "driver/verbs/connection.h"

#include <algorithm>

#include "spec/infiniband/constants.h"

namespace softhca::driver::verbs {

namespace {

/// A different PSN for each QPN, so that packets of an earlier connection are not accepted by this
/// one.
std::uint32_t first_psn(std::uint32_t qpn) {
  return (qpn * 2654435761u >> 8) & spec::infiniband::kPsnMask;  // no format: a hash
}

}  // namespace

Endpoint describe(const QueuePair& qp, const ConnectionOptions& options) {
  Endpoint end{.type = qp.type(),
               .qpn = qp.number(),
               .psn = first_psn(qp.number()),
               .qkey = qp.type() == QpType::kUd ? options.qkey : 0,
               .gid = qp.gid(options.gid_index),
               .mac = qp.device().mac,
               .lid = qp.device().lid,
               .path_mtu = options.path_mtu,
               .reads = options.reads};
  if (options.memory != nullptr) {
    end.address = options.memory->address();
    end.length = options.memory->bytes().size();
    end.rkey = options.memory->rkey();
  }
  return end;
}

Path path_to(const Endpoint& peer, std::uint8_t gid_index) {
  return {.gid = peer.gid, .mac = peer.mac, .lid = peer.lid, .source_gid_index = gid_index};
}

util::Result<void> to_init(QueuePair& qp, const ConnectionOptions& options) {
  QpAttributes init{
      .state = QpState::kInit, .pkey_index = std::uint16_t{0}, .port = std::uint8_t{1}};
  if (qp.type() == QpType::kUd) {
    init.qkey = options.qkey;
  } else {
    init.access = options.access;
  }
  return qp.modify(init);
}

util::Result<void> to_rtr(QueuePair& qp, const Endpoint& peer, const ConnectionOptions& options) {
  QpAttributes rtr{.state = QpState::kRtr};
  if (qp.type() == QpType::kUd) return qp.modify(rtr);
  rtr.path = path_to(peer, options.gid_index);
  rtr.path_mtu = std::min(options.path_mtu, peer.path_mtu);
  rtr.destination_qpn = peer.qpn;
  rtr.receive_psn = peer.psn;
  if (qp.type() == QpType::kRc) {
    rtr.max_peer_reads = options.reads;
    rtr.min_rnr_timer = options.min_rnr_timer;
  }
  return qp.modify(rtr);
}

util::Result<void> to_rts(QueuePair& qp, const Endpoint& peer, const ConnectionOptions& options) {
  QpAttributes rts{.state = QpState::kRts, .send_psn = first_psn(qp.number())};
  if (qp.type() == QpType::kRc) {
    rts.timeout = options.timeout;
    rts.retry_count = options.retry_count;
    rts.rnr_retry = options.rnr_retry;
    rts.max_reads = std::min(options.reads, peer.reads);
  }
  return qp.modify(rts);
}

util::Result<void> connect(QueuePair& qp, const Endpoint& peer, const ConnectionOptions& options) {
  if (qp.type() != peer.type) {
    return util::fail("the peer's queue pair is of another service");
  }
  if (auto done = to_init(qp, options); !done) return done;
  if (auto done = to_rtr(qp, peer, options); !done) return done;
  return to_rts(qp, peer, options);
}

util::Result<void> connect(QueuePair& a, QueuePair& b, const ConnectionOptions& options) {
  const auto end_a = describe(a, options);
  const auto end_b = describe(b, options);
  if (auto done = connect(a, end_b, options); !done) return done;
  return connect(b, end_a, options);
}

util::Result<void> activate(QueuePair& qp, const ConnectionOptions& options) {
  return connect(qp, describe(qp, options), options);
}

}  // namespace softhca::driver::verbs

#include "rdma/dc_initiator.h"

#include "rdma/engine.h"

namespace softhca::rdma {

void DcInitiator::open(const SendRequest& request, std::uint64_t first) {
  to_ = request.ud;
  key_ = request.dc_key;
  session_ = engine_.dc_targets.new_session();
  first_psn_ = first;
  open_ = true;
}

void DcInitiator::fill(wire::DcEth& eth, const SendWindow& sends) const {
  eth = {.key = key_,
         .may_connect = sends.unacked() == first_psn_,
         .source_qp = qp_.qpn(),
         .session = session_,
         .first_psn = wire::Psn(static_cast<std::uint32_t>(first_psn_))};
}

/// There is no response to this packet. If it is lost, the target keeps its connection until it
/// needs the room, or until the next connection replaces it.
void DcInitiator::close(const wire::IbHeader* path, const SendWindow& sends) {
  if (path != nullptr) {
    auto& frame = engine_.new_frame();
    auto& [bth, ext] = path->begin(wire::Opcode::DC_DISCONNECT, 0, frame);
    bth.mig_req = true;
    bth.pkey = qp_.pkey();
    bth.dest_qp = qp_.attributes().remote_qpn;
    bth.psn = wire::Psn(static_cast<std::uint32_t>(sends.sent_end()));
    fill(ext.dceth, sends);
    engine_.transmit(frame);
  }
  open_ = false;
}

}  // namespace softhca::rdma

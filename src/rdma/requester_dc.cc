// A DC initiator (README.md, "Dynamic connections"): each request names its target, and the
// initiator is connected to one target at a time. PSNs continue from one connection to the next.

#include <algorithm>

#include "rdma/engine.h"
#include "rdma/requester.h"

namespace softhca::rdma {

/// True if the next request can be sent now. If its target differs from the current one, it waits
/// until all requests to the current target are answered.
bool Requester::reaches(const SendEntry& e) {
  if (e.psns == 0) return true;  // not on the wire
  const auto& request = e.request;
  const bool idle = window_.all_acknowledged();
  if (dc_->open && dc_->to == request.ud && dc_->key == request.dc_key) {
    // While the initiator was idle, the target may have dropped the connection, or been recreated
    // under its number. So the next request may open the connection again.
    if (idle) dc_->first_psn = window_.sent_end();
    return true;
  }
  if (!idle) return false;
  connect(e);
  return true;
}

/// Opens a connection without a packet of its own: requests carry the connection data until the
/// first of them is answered.
void Requester::connect(const SendEntry& e) {
  disconnect();
  *dc_ = {.to = e.request.ud,
          .key = e.request.dc_key,
          .session = engine_.dc_targets.new_session(),
          .first_psn = e.first_psn,
          .open = true};
  qp_.attributes_.path = e.request.ud;
  qp_.attributes_.remote_qpn = e.request.ud.qpn;
  qp_.header_generation_ = qp_.seen_generation_ = 0;
  refresh_retries();
}

void Requester::fill(wire::DcEth& eth) const {
  eth = {.key = dc_->key,
         .may_connect = window_.unacked() == dc_->first_psn,
         .source_qp = qp_.qpn(),
         .session = dc_->session,
         .first_psn = wire::Psn(static_cast<std::uint32_t>(dc_->first_psn))};
}

/// There is no response to this packet. If it is lost, the target keeps its connection until it
/// needs the room, or until the next connection replaces it.
void Requester::disconnect() {
  if (dc_ == nullptr || !dc_->open) return;
  if (const auto* header = engine_.path_header(qp_); header != nullptr) {
    auto& frame = engine_.new_frame();
    auto& [bth, ext] = header->begin(wire::Opcode::DC_DISCONNECT, 0, frame);
    bth.mig_req = true;
    bth.pkey = qp_.pkey();
    bth.dest_qp = qp_.attributes().remote_qpn;
    bth.psn = wire::Psn(static_cast<std::uint32_t>(window_.sent_end()));
    fill(ext.dceth);
    engine_.transmit(frame);
  }
  dc_->open = false;
}

}  // namespace softhca::rdma

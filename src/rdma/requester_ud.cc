// Datagrams (IBTA 9.8.3): one packet for each request, and nobody answers.

#include "rdma/engine.h"
#include "rdma/requester_inl.h"

namespace softhca::rdma {

void Requester::send_datagram(Entry& e) {
  const auto& request = e.request;
  const auto& to = request.ud;
  // Datagrams often go where the last one went.
  const auto generation = engine_.addresses.generation();
  auto& path = *datagram_path_;
  if (path.generation != generation || !(path.to == to)) {
    wire::IbAddress address;
    const auto missing = engine_.addresses.make_address(to, address);
    if (missing != Reason::kNone) return refuse(e, WorkStatus::kLocalQpOperation, missing);
    path.header = wire::IbHeader(address);
    path.to = to;
    path.generation = generation;
  }
  path.to.number = to.number;

  auto& frame = engine_.new_frame();
  const auto opcode = request.opcode == SendOpcode::kSendWithImmediate
                          ? wire::Opcode::UD_SEND_ONLY_WITH_IMMEDIATE
                          : wire::Opcode::UD_SEND_ONLY;
  auto& [bth, ext] = path.header.begin(opcode, e.length, frame);
  bth.solicited_event = request.solicited;
  bth.pkey = qp_.attributes().pkey;
  bth.dest_qp = to.qpn;
  bth.psn = wire::Psn(static_cast<std::uint32_t>(e.first_psn));
  const bool own_qkey = spec::infiniband::means_own_qkey(to.qkey);
  ext.deth.qkey = wire::QKey(own_qkey ? qp_.attributes().qkey : to.qkey);
  ext.deth.src_qp =
      qp_.attributes().deth_source_qpn.value_or(engine_.is_gsi(qp_) ? wire::kGsiQpn : qp_.qpn());
  ext.immdt.data = request.immediate;
  if (!add_only_payload(e, frame)) return;
  e.last_frame = engine_.transmit(frame);
  sent_end_ = unacked_ = e.end_psn();
  pass(e);
}

}  // namespace softhca::rdma

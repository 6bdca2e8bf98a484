// Methods of Answers on the path of every packet, which need the definition of Engine.
#pragma once

#include "rdma/answers.h"
#include "rdma/engine.h"

namespace softhca::rdma {

/// The BTH of a response, without the AckReq and solicited event bits.
inline void Answers::fill(wire::Bth& bth, wire::Psn psn) const {
  const auto& attributes = qp_.attributes();
  bth.mig_req = true;  // the only path, so the connection is in Migrated (IBTA 17.2.8.1)
  bth.pkey = qp_.pkey();
  bth.dest_qp = attributes.remote_qpn;
  bth.psn = psn;
}

/// Charges a response that is sent while its request arrives: it is outside the QP's turn, which
/// would count it.
inline void Answers::charge(std::uint32_t bytes) {
  engine_.keys.work().charge(Engine::kStepWork + bytes / Engine::kBytesPerUnit);
}

[[gnu::always_inline]] inline void Answers::send_read(const wire::IbHeader& path, wire::Psn psn,
                                                      wire::Msn msn, std::span<std::byte> data) {
  due_ = false;  // IBTA 9.7.5.1: a response acknowledges all requests before it
  const auto form = wire::IbHeader::form(wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY);
  auto& frame = engine_.new_frame();
  auto& [bth, ext] = path.begin(form, data.size(), frame);
  fill(bth, psn);
  ext.aeth = wire::Aeth::ack(msn);
  (void)frame.add_segment(data);
  engine_.transmit(frame);
  charge(static_cast<std::uint32_t>(data.size()));
}

}  // namespace softhca::rdma

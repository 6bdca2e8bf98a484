#include "rdma/packet_writer.h"

namespace softhca::rdma {
namespace {

using wire::Opcode;

using MaskedView = util::MutableView<wire::MaskedAtomicLayout>;

Opcode atomic_opcode(wire::Service service, SendOpcode request) {
  switch (request) {
    case SendOpcode::kMaskedCompareSwap:
    case SendOpcode::kMaskedFetchAdd:
      return wire::masked_atomic(service, request == SendOpcode::kMaskedFetchAdd);
    case SendOpcode::kFetchAdd:
      return opcode_of(service, Opcode::RC_FETCH_ADD);
    default:
      return opcode_of(service, Opcode::RC_CMP_SWAP);
  }
}

constexpr bool has_reth(SendOpcode opcode) {
  return opcode == SendOpcode::kRdmaWrite || opcode == SendOpcode::kRdmaWriteWithImmediate;
}

}  // namespace

void PacketWriter::set_train(const SendEntry& e, const Part& part, wire::Frame& frame) const {
  const bool more = part.packet == 0 && has_reth(e.request.opcode);
  frame.set_train({static_cast<std::uint16_t>(part.count),
                   static_cast<std::uint16_t>(qp_.attributes().path_mtu),
                   static_cast<std::uint8_t>(more ? wire::RethLayout::kSize : 0), part.ack_req});
}

wire::TransportHeaders& PacketWriter::begin_atomic(const wire::IbHeader& path, const SendEntry& e,
                                                   wire::Frame& frame) const {
  const auto& request = e.request;
  const auto payload = e.is_masked() ? wire::MaskedAtomicLayout::kSize : 0;
  auto& headers = path.begin(atomic_opcode(qp_.service().packets, request.opcode), payload, frame);
  if (payload != 0) request.masked.emit(MaskedView(frame.own_payload(payload)));
  auto& [bth, ext] = headers;
  fill(bth, e.first_psn);
  bth.ack_req = true;  // the response acknowledges it
  ext.atomic = {request.remote_address, wire::RKey(request.rkey.value()), request.swap_add,
                request.compare};
  ext.xrceth.xrc_srq = request.remote_srqn;
  return headers;
}

}  // namespace softhca::rdma

#include "rdma/datagrams.h"

#include <algorithm>
#include <array>

#include "rdma/engine.h"

namespace softhca::rdma {
namespace {

/// The BTH and DETH fields that all datagrams of a QP to one destination share.
struct DatagramFields {
  DatagramFields(const QueuePair& qp, const UdDestination& to, Qpn source)
      : dest_qp(to.qpn),
        pkey(qp.pkey()),
        qkey(spec::infiniband::means_own_qkey(to.qkey) ? qp.attributes().qkey : to.qkey),
        src_qp(qp.attributes().deth_source_qpn.value_or(source)) {}

  void fill(wire::TransportHeaders& headers, std::uint64_t psn) const {
    headers.bth.pkey = pkey;
    headers.bth.dest_qp = dest_qp;
    headers.bth.psn = wire::Psn(static_cast<std::uint32_t>(psn));
    headers.ext.deth.qkey = wire::QKey(qkey);
    headers.ext.deth.src_qp = src_qp;
  }

  Qpn dest_qp;
  std::uint16_t pkey;
  std::uint32_t qkey;
  Qpn src_qp;
};

constexpr wire::Opcode opcode_of(SendOpcode opcode) {
  return opcode == SendOpcode::kSendWithImmediate ? wire::Opcode::UD_SEND_ONLY_WITH_IMMEDIATE
                                                  : wire::Opcode::UD_SEND_ONLY;
}

}  // namespace

Reason Datagrams::choose(const UdDestination& to) {
  wire::IbAddress address;
  const auto missing = engine_.addresses.make_address(to, address);
  if (missing != Reason::kNone) return missing;
  header_ = wire::IbHeader(address);
  to_ = to;
  generation_ = engine_.addresses.generation();
  return Reason::kNone;
}

Reason Datagrams::send(SendEntry& e, RequestMemory& memory) {
  const auto& request = e.request;
  to_.number = request.ud.number;
  auto& frame = engine_.new_frame();
  auto& headers = header_.begin(opcode_of(request.opcode), e.length, frame);
  headers.bth.solicited_event = request.solicited;
  headers.ext.immdt.data = request.immediate;
  DatagramFields(qp_, request.ud, engine_.is_gsi(qp_) ? wire::kGsiQpn : qp_.qpn())
      .fill(headers, e.first_psn);
  const auto fault = memory.add_all(e, frame);
  if (!engine_.moved(qp_, fault, true)) return fault;
  e.last_frame = engine_.transmit(frame);
  return Reason::kNone;
}

unsigned Datagrams::send_fast(SendQueue& queue, RequestMemory& memory, unsigned quota) {
  auto& window = queue.window();
  const auto& attributes = qp_.attributes();
  if (to_.number == 0 || !window.empty() || qp_.state() != QpState::kRts ||
      generation_ != engine_.addresses.generation()) {
    return 0;
  }
  const auto headers_max = header_.size(wire::Opcode::UD_SEND_ONLY_WITH_IMMEDIATE);
  const auto bytes_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {attributes.path_mtu, attributes.message_max, wire::Frame::kHeadCapacity - headers_max}));
  const DatagramFields fields(qp_, to_, engine_.is_gsi(qp_) ? wire::kGsiQpn : qp_.qpn());
  const auto forms = std::array{wire::IbHeader::form(opcode_of(SendOpcode::kSend)),
                                wire::IbHeader::form(opcode_of(SendOpcode::kSendWithImmediate))};
  unsigned used = 0;
  while (used != quota && !queue.all_fetched()) {
    ShortDatagram datagram;
    if (!queue.fetch_datagram_fast(to_.number, bytes_max, datagram)) break;
    const std::byte* from = datagram.inline_data;
    if (from == nullptr) {
      from = memory.find_payload(datagram.lkey, datagram.address, datagram.length);
    }
    if (from == nullptr) {
      window.count_sent(used);
      queue.keep(datagram, to_);
      return used;
    }
    auto& frame = engine_.new_frame();
    auto& headers = header_.begin(forms[datagram.opcode == SendOpcode::kSendWithImmediate],
                                  datagram.length, frame);
    headers.bth.solicited_event = datagram.solicited;
    headers.ext.immdt.data = datagram.immediate;
    fields.fill(headers, window.next_psn() + used);
    util::copy_header(frame.extend_head(datagram.length).data(), from, datagram.length);
    engine_.transmit(frame);
    ++used;
    if (datagram.signaled) {
      qp_.queues().complete_send({.cookie = datagram.cookie,
                                  .opcode = datagram.opcode,
                                  .status = WorkStatus::kSuccess,
                                  .signaled = true,
                                  .byte_count = datagram.length,
                                  .reason = Reason::kNone});
    }
    if (engine_.keys.work().over_budget()) break;
  }
  window.count_sent(used);
  return used;
}

}  // namespace softhca::rdma

// CQEs of QPs (mlx5 driver interface 8.7): encodes a completion of the transport in 64 bytes. The
// CQ sets the owner bit. Error CQEs: queue/error_cqe.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "connectx/base/numbers.h"
#include "connectx/qp/send_wqe.h"
#include "rdma/block_signature.h"
#include "rdma/work_request.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"
#include "wire/vlan.h"

namespace softhca::connectx {

using Cqe = std::array<std::byte, 64>;
using WideCqe = std::array<std::byte, 128>;

/// User index of a queue with CQEs of version 0, which drivers look up by its number.
inline constexpr std::uint32_t kNoUserIndex = 0xFFFFFF;

/// Value of cqe64_responder::grh: the 40 bytes before the datagram are its network header.
inline constexpr std::uint32_t kCqeGrhInBuffer = 1;

constexpr spec::connectx::cqe_roce_l3_type l3_type(wire::NetworkHeader network) {
  using enum spec::connectx::cqe_roce_l3_type;
  return network == wire::NetworkHeader::kIpv4   ? IPV4
         : network == wire::NetworkHeader::kIpv6 ? IPV6
                                                 : GRH;
}

constexpr spec::connectx::cqe_opcode responder_opcode(rdma::ReceiveOpcode opcode) {
  using spec::connectx::cqe_opcode;
  switch (opcode) {
    case rdma::ReceiveOpcode::kSend:
      return cqe_opcode::RESPONDER_SEND;
    case rdma::ReceiveOpcode::kSendWithImmediate:
      return cqe_opcode::RESPONDER_SEND_WITH_IMMEDIATE;
    case rdma::ReceiveOpcode::kSendWithInvalidate:
      return cqe_opcode::RESPONDER_SEND_WITH_INVALIDATE;
    case rdma::ReceiveOpcode::kRdmaWriteWithImmediate:
      break;
  }
  return cqe_opcode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE;
}

/// The queue that a CQE is for.
struct CqeQueue {
  Qpn qpn;                       ///< as CREATE_QP returned it, also for QP1
  std::uint32_t user_index = 0;  ///< for srqn_user_index: user index, SRQN or 0
  bool is_datagram = false;
  bool is_gsi = false;
};

/// Encodes a CQE that reports a wrong block signature.
void encode_signature_error(Cqe& cqe, Qpn qpn, const rdma::SignatureError& error);
/// Encodes an error CQE of a send queue. The completion's cookie is a SendCookie.
void encode_requester_error(Cqe& cqe, const CqeQueue& queue,
                            const rdma::SendCompletion& completion);
/// Encodes a CQE of a send queue: an error CQE if the completion is an error.
inline void encode_requester_cqe(Cqe& cqe, const CqeQueue& queue,
                                 const rdma::SendCompletion& completion, std::uint64_t timestamp) {
  using Layout = spec::connectx::cqe64_requester;
  if (completion.status != rdma::WorkStatus::kSuccess) {
    return encode_requester_error(cqe, queue, completion);
  }
  const auto cookie = SendCookie::unpack(completion.cookie);
  const bool brings_data = completion.opcode == rdma::SendOpcode::kRdmaRead ||
                           completion.opcode == rdma::SendOpcode::kCompareSwap ||
                           completion.opcode == rdma::SendOpcode::kFetchAdd ||
                           completion.opcode == rdma::SendOpcode::kMaskedCompareSwap ||
                           completion.opcode == rdma::SendOpcode::kMaskedFetchAdd;
  cqe = {};
  const util::MutableView<Layout> out(cqe);
  out.set(Layout::srqn_user_index, queue.user_index);
  if (brings_data) out.set(Layout::byte_cnt, completion.byte_count);
  out.set(Layout::timestamp, timestamp);
  out.set(Layout::s_wqe_opcode, cookie.opcode);
  out.set(Layout::qpn, queue.qpn.value());
  out.set(Layout::wqe_counter, cookie.index);
  out.set(Layout::opcode, static_cast<std::uint32_t>(spec::connectx::cqe_opcode::REQUESTER));
}
/// Adds the packet's VLAN tag to the CQE of a receive.
inline void encode_tag(Cqe& cqe, std::uint16_t tci) {
  using Layout = spec::connectx::cqe64_responder;
  const util::MutableView<Layout> out(cqe);
  util::Struct<wire::VlanLayout> tag;
  tag.set(wire::VlanLayout::tci, tci);
  out.set(Layout::cv, 1);
  out.set(Layout::up, tag.get(wire::VlanLayout::pcp));
  out.set(Layout::cfi, tag.get(wire::VlanLayout::dei));
  out.set(Layout::vid, tag.get(wire::VlanLayout::vid));
}
void encode_responder_error(Cqe& cqe, const CqeQueue& queue,
                            const rdma::ReceiveCompletion& completion);
/// Encodes a CQE of a receive. The completion's cookie is the WQE's counter, or its index in an
/// SRQ.
[[gnu::always_inline]] inline void encode_responder_cqe(Cqe& cqe, const CqeQueue& queue,
                                                        const rdma::ReceiveCompletion& completion,
                                                        std::uint64_t timestamp) {
  using Layout = spec::connectx::cqe64_responder;
  using rdma::ReceiveOpcode;
  if (completion.status != rdma::WorkStatus::kSuccess) {
    return encode_responder_error(cqe, queue, completion);
  }
  cqe = {};
  const util::MutableView<Layout> out(cqe);
  // The DETH of a datagram names its source. The peer of a connected QP is known.
  if (queue.is_datagram) {
    out.set(Layout::grh, kCqeGrhInBuffer);
    out.set(Layout::rqpn, completion.source_qpn.value());
  }
  out.set(Layout::sl_l3_type, static_cast<std::uint32_t>(l3_type(completion.network)));
  if (completion.vlan_tci) encode_tag(cqe, *completion.vlan_tci);
  out.set(Layout::srqn_user_index, queue.user_index);
  if (completion.opcode != ReceiveOpcode::kSend) {
    out.set(Layout::imm_inval_pkey, completion.immediate);
  } else if (queue.is_gsi) {
    out.set(Layout::imm_inval_pkey, completion.pkey);
  }
  out.set(Layout::byte_cnt, completion.byte_count);
  out.set(Layout::timestamp, timestamp);
  out.set(Layout::qpn, queue.qpn.value());
  out.set(Layout::wqe_counter, completion.cookie & Layout::wqe_counter.kMax);
  out.set(Layout::opcode, static_cast<std::uint32_t>(responder_opcode(completion.opcode)));
  out.set(Layout::se, completion.solicited ? 1 : 0);
}

}  // namespace softhca::connectx

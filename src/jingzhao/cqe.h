// CQEs (JingZhao 3.3), encoded from the transport's completions.
#pragma once

#include "jingzhao/numbers.h"
#include "jingzhao/send_wqe.h"
#include "rdma/work_request.h"
#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::jingzhao {

using Cqe = util::MutableView<spec::jingzhao::cqe>;

/// The QP's fields of a CQE.
struct CqeQueue {
  Qpn qpn;
  Qpn remote_qpn;              ///< connected services only
  std::uint32_t path_mtu = 0;  ///< bytes
  rdma::QpType type = rdma::QpType::kRc;
};

// The encoders expect zeroed entries; the zero owner bit makes software the owner.

/// Encodes the CQE of a successful send: the most frequent CQE.
inline void encode_good_send_cqe(Cqe out, const CqeQueue& queue,
                                 const rdma::SendCompletion& completion) {
  using spec::jingzhao::cqe;
  const auto wqe = SendCookie::unpack(completion.cookie);
  out.set(cqe::my_qpn, queue.qpn.value());
  out.set(cqe::rqpn, queue.remote_qpn.value());
  out.set(cqe::byte_cnt, completion.byte_count);
  out.set(cqe::wqe, wqe.place * static_cast<std::uint32_t>(spec::jingzhao::next_unit::kSize));
  out.set(cqe::is_send, 1);
  out.set(cqe::opcode, wqe.opcode);
}
/// Encodes the CQE of a failed send.
void encode_bad_send_cqe(Cqe cqe, const CqeQueue& queue, const rdma::SendCompletion& completion);
void encode_receive_cqe(Cqe cqe, const CqeQueue& queue, const rdma::ReceiveCompletion& completion);

}  // namespace softhca::jingzhao

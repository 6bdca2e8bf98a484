// CQEs (JingZhao 3.3): from the transport's completions.
#pragma once

#include "jingzhao/numbers.h"
#include "jingzhao/send_wqe.h"
#include "rdma/work_request.h"
#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::jingzhao {

using Cqe = util::MutableView<spec::jingzhao::cqe>;

/// What a CQE tells of its QP.
struct CqeQueue {
  Qpn qpn;
  Qpn remote_qpn;              ///< of a connection
  std::uint32_t path_mtu = 0;  ///< bytes
  rdma::QpType type = rdma::QpType::kRc;
};

// `cqe` is zero at first, which makes software its owner.

/// Of a request that has ended in success: nothing else is written as often.
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
/// Of one that has not.
void encode_bad_send_cqe(Cqe cqe, const CqeQueue& queue, const rdma::SendCompletion& completion);
void encode_receive_cqe(Cqe cqe, const CqeQueue& queue, const rdma::ReceiveCompletion& completion);

}  // namespace softhca::jingzhao

// CQEs (JingZhao 3.3): from the transport's completions.
#pragma once

#include "jingzhao/numbers.h"
#include "rdma/work_request.h"
#include "spec/jingzhao/cqe.h"
#include "util/field.h"

namespace softhca::jingzhao {

using Cqe = util::Struct<spec::jingzhao::cqe>;

/// What a CQE tells of its QP.
struct CqeQueue {
  Qpn qpn;
  Qpn remote_qpn;              ///< of a connection
  std::uint32_t path_mtu = 0;  ///< bytes
};

/// `cqe` is zero at first, which makes software its owner.
void encode_send_cqe(Cqe& cqe, const CqeQueue& queue, const rdma::SendCompletion& completion);
void encode_receive_cqe(Cqe& cqe, const CqeQueue& queue, const rdma::ReceiveCompletion& completion);

}  // namespace softhca::jingzhao

#include "jingzhao/receive_ring.h"

#include <array>

#include "jingzhao/numbers.h"

namespace softhca::jingzhao {

using spec::jingzhao::qp_context;

/// The context may have been changed in host memory, so sizes are bounded here.
void ReceiveRing::decode(rdma::KeyTable& keys, util::View<qp_context> context) {
  const auto log_stride = context.get(qp_context::rq_entry_sz_log);
  const auto bytes = std::min(context.get(qp_context::rcv_wqe_len), limits::kMaxQueue);
  const bool fits = log_stride < 32 && (std::uint32_t{1} << log_stride) >= kUnit &&
                    (std::uint32_t{1} << log_stride) <= bytes;
  stride_ = fits ? std::uint32_t{1} << log_stride : 0;
  size_ = fits ? bytes / stride_ * stride_ : 0;
  // A queue whose stride has changed begins at its first WQE.
  if (place_ >= size_ || place_ % stride_ != 0) place_ = 0;
  memory_ = QueueMemory(keys, rdma::MKey(context.get(qp_context::rcv_wqe_base_l)),
                        rdma::Pd(context.get(qp_context::pd)), size_);
}

bool ReceiveRing::has_posted() {
  std::array<std::byte, kUnit> first;
  return exists() && read(first) && is_posted(first);
}

}  // namespace softhca::jingzhao

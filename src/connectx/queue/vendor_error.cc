#include "connectx/queue/vendor_error.h"

#include <algorithm>

namespace softhca::connectx {

namespace {

using enum spec::connectx::cqe_syndrome;

constexpr VendorError kVendorErrors[] = {
    {TRANSPORT_RETRY_COUNTER_EXCEEDED, ErrorQueue::kQpSends, 0x81,
     "the peer did not answer, retry_cnt times", "NVIDIA/nccl#426, openucx/ucx#6000"},
    {REMOTE_ACCESS_ERROR, ErrorQueue::kQpSends, 0x88,
     "the peer refused the R_Key, the address or the access",
     "ofiwg/libfabric#4283, openucx/ucx#1569"},
    {REMOTE_OPERATION_ERROR, ErrorQueue::kQpSends, 0x89, "the peer failed to do what it was asked",
     "openucx/ucx#5472"},
    {REMOTE_INVALID_REQUEST_ERROR, ErrorQueue::kQpSends, 0x8A,
     "the peer refused the request itself", "charmplusplus/charm#2532"},
    {LOCAL_PROTECTION_ERROR, ErrorQueue::kQpSends, 0x51,
     "an L_Key of the send WQE does not give its memory", "NVIDIA/nccl#523, perftest#173"},
    {LOCAL_PROTECTION_ERROR, ErrorQueue::kSq, 0x52,
     "an L_Key of the SQ's WQE does not give its memory", "FDio/csit#3988"},
    {LOCAL_PROTECTION_ERROR, ErrorQueue::kReceives, 0x32,
     "an L_Key of the receive WQE does not give its memory", "openucx/ucx#9167"},
    {WORK_REQUEST_FLUSHED_ERROR, std::nullopt, 0xF9, "flushed: the queue is in error",
     "ruihong123/dLSM#7, linux-nvme/nvme-cli#3268"},
    // softhca never reports REMOTE_ABORTED_ERROR.
    {REMOTE_ABORTED_ERROR, std::nullopt, 0x93,
     "a receive was aborted by a page fault (no device of softhca gives it)",
     "mlx5dv.h: MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT"},
    {REMOTE_ABORTED_ERROR, std::nullopt, 0x99,
     "a receive was aborted by a wrong PSN (no device of softhca gives it)",
     "openucx/ucx, ib_mlx5.h"},
};

}  // namespace

std::span<const VendorError> vendor_errors() { return kVendorErrors; }

std::uint8_t vendor_error(ErrorQueue queue, spec::connectx::cqe_syndrome syndrome,
                          rdma::Reason reason) {
  const auto* known = std::ranges::find_if(kVendorErrors, [&](const VendorError& row) {
    return row.syndrome == syndrome && row.queue.value_or(queue) == queue;
  });
  return known != std::end(kVendorErrors) ? known->number : static_cast<std::uint8_t>(reason);
}

}  // namespace softhca::connectx

// Receive WQEs (PRM 7.4.4.3, mlx5 driver interface 8.5): a scatter list.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "connectx/base/limits.h"
#include "rdma/work_request.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

/// Bytes of a WQE, of QPs, SRQs and RQs alike.
inline constexpr std::size_t kReceiveWqeMax = Limits{}.max_wqe_sz_rq;
static_assert(kReceiveWqeMax == Limits::count(Limits{}.log_max_stride_sz_rq));

/// Appends the scatter list of a WQE, to its end or its end marker. `wqe` is a copy in the device's
/// own memory.
void decode_scatter_list_closely(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges);
inline void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges) {
  using Segment = spec::connectx::receive_data_segment;
  const util::View<Segment> segment(wqe);
  const auto length = segment.get(Segment::byte_count);
  if (wqe.size() != Segment::kSize || length == 0) return decode_scatter_list_closely(wqe, sges);
  sges.push_back(
      {segment.get(Segment::local_address), length, rdma::MKey(segment.get(Segment::l_key))});
}

}  // namespace softhca::connectx

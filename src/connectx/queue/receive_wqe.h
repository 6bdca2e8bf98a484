// Receive WQEs (PRM 7.4.4.3, mlx5 driver interface 8.5): a scatter list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "connectx/base/limits.h"
#include "rdma/work_request.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

/// Maximum bytes of a receive WQE of a QP, SRQ or RQ.
inline constexpr std::size_t kReceiveWqeMax = Limits{}.max_wqe_sz_rq;
static_assert(kReceiveWqeMax == Limits::count(Limits{}.log_max_stride_sz_rq));

/// The key of the entry that ends a scatter list. PRM 7.4.1.2: "scatter pointer specifying a zero
/// value in the byte_count field and L_Key = 0x00000100".
inline constexpr std::uint32_t kEndOfListKey = 0x100;

/// Bytes of the segment with the signature, before the scatter list (PRM Table 23; for an SRQ,
/// Table 43, at the same offset).
inline constexpr std::size_t kReceiveSignatureSize = spec::connectx::rq_signature_entry::kSize;

/// True if the signature is right. PRM Table 23: "The signature covers the entire WQE as well as
/// the RQ number and the WQE index corresponding to that WQE. Should result in 0xff. [...] covers
/// the whole WQE stride including the NULL segments." libmlx5 does not cover the NULL segment that
/// ends a list, so that form is also accepted. The cost: with a NULL segment, a sum that is wrong
/// by 1 is not detected. `wqe`: the whole stride, including the signature.
bool has_receive_signature(std::span<const std::byte> wqe, std::uint32_t queue_number,
                           std::uint16_t wqe_index);

/// Appends the entries of a WQE's scatter list, up to its end marker or the end of the WQE. `wqe`
/// is a copy in the device's own memory.
void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges);
/// Fast path of decode_scatter_list(), for a list of one entry. `wqe` points to `size` bytes that
/// software may change concurrently. False if the caller must use decode_scatter_list().
inline bool decode_scatter_list_fast(const std::byte* wqe, std::size_t size, rdma::Sge& sge) {
  using Segment = spec::connectx::receive_data_segment;
  std::array<std::byte, Segment::kSize> copy;
  const util::View<Segment> segment(copy);
  if (size > Segment::kSize) {
    std::memcpy(copy.data(), wqe + Segment::kSize, copy.size());
    if (segment.get(Segment::byte_count) != 0 || segment.get(Segment::l_key) != kEndOfListKey) {
      return false;
    }
  }
  std::memcpy(copy.data(), wqe, copy.size());
  sge = {segment.get(Segment::local_address), segment.get(Segment::byte_count),
         rdma::MKey(segment.get(Segment::l_key))};
  return sge.length != 0;
}

}  // namespace softhca::connectx

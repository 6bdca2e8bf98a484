#include "connectx/queue/receive_wqe.h"

#include "connectx/queue/data_segment.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using ReceiveSegment = spec::connectx::receive_data_segment;

bool is_end_of_list(std::span<const std::byte> segment) {
  const util::View<ReceiveSegment> view(segment);
  return view.get(ReceiveSegment::byte_count) == 0 &&
         view.get(ReceiveSegment::l_key) == kEndOfListKey;
}

std::byte sum_of(std::span<const std::byte> bytes) {
  std::byte sum{};
  for (const auto byte : bytes) sum ^= byte;
  return sum;
}

/// The XOR of a number's bytes. It does not depend on the byte order.
std::byte sum_of(std::uint32_t number) { return sum_of(std::as_bytes(std::span(&number, 1))); }

}  // namespace

bool has_receive_signature(std::span<const std::byte> wqe, std::uint32_t queue_number,
                           std::uint16_t wqe_index) {
  constexpr std::byte kRight{0xFF};
  const auto numbers = sum_of(queue_number) ^ sum_of(wqe_index);
  if ((numbers ^ sum_of(wqe)) == kRight) return true;
  auto end = kReceiveSignatureSize;
  while (end + ReceiveSegment::kSize <= wqe.size() && !is_end_of_list(wqe.subspan(end))) {
    end += ReceiveSegment::kSize;
  }
  return (numbers ^ sum_of(wqe.first(end))) == kRight;
}

void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges) {
  for (; wqe.size() >= ReceiveSegment::kSize; wqe = wqe.subspan(ReceiveSegment::kSize)) {
    const util::View<ReceiveSegment> segment(wqe);
    const auto key = segment.get(ReceiveSegment::l_key);
    const auto count = segment.get(ReceiveSegment::byte_count);
    if (count == 0 && key == kEndOfListKey) return;
    sges.push_back(
        {segment.get(ReceiveSegment::local_address), segment_length(count), rdma::MKey(key)});
  }
}

}  // namespace softhca::connectx

#include "connectx/queue/receive_wqe.h"

#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges) {
  using Segment = spec::connectx::receive_data_segment;
  for (; wqe.size() >= Segment::kSize; wqe = wqe.subspan(Segment::kSize)) {
    const util::View<Segment> segment(wqe);
    const auto key = segment.get(Segment::l_key);
    auto length = segment.get(Segment::byte_count);
    if (length == 0) {
      if (key == kEndOfListKey) return;
      length = 1u << 31;  // "A byte count value of zero means 2Gbyte."
    }
    sges.push_back({segment.get(Segment::local_address), length, rdma::MKey(key)});
  }
}

}  // namespace softhca::connectx

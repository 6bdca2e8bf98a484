#include "connectx/qp/shared_receive_queue.h"

#include <utility>

#include "connectx/queue/receive_wqe.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"
#include "util/log.h"

namespace softhca::connectx {

using rdma::Fetch;
using spec::connectx::srq_next_segment;

SharedReceiveQueue::SharedReceiveQueue(std::uint32_t number, Attributes attributes)
    : number_(number), attributes_(std::move(attributes)) {}

std::optional<std::uint32_t> SharedReceiveQueue::read_available() {
  const auto counter = attributes_.record.read(0);
  if (!counter) return std::nullopt;
  const auto posted = static_cast<std::uint16_t>(*counter);
  const auto available = static_cast<std::uint16_t>(posted - consumed_);
  if (available > size()) return std::nullopt;
  posted_ = posted;
  return available;
}

Fetch SharedReceiveQueue::fetch(rdma::ReceiveRequest& request) {
  if (failed_) return Fetch::kUnreadable;
  if (posted_ == consumed_) {
    const auto available = read_available();
    if (!available) return fail("its doorbell record is gone, or its counter is past the queue");
    if (*available == 0) return Fetch::kNothing;
  }
  std::array<std::byte, std::size_t{1} << kLogStrideMax> wqe;
  const auto bytes = std::span(wqe).first(std::size_t{1} << attributes_.log_stride);
  if (!attributes_.buffer.read(std::uint64_t{next_} << attributes_.log_stride, bytes)) {
    return fail("its memory is gone");
  }
  // The link is valid now: software wrote it before it posted this WQE, and may write another as
  // soon as this one is complete.
  const util::View<srq_next_segment> segment(bytes);
  const auto next = segment.get(srq_next_segment::next_wqe_index);
  if (next >= size()) return fail("next_wqe_index is past the queue (PRM Table 43)");
  auto list = std::span<const std::byte>(bytes).subspan(srq_next_segment::kSize);
  if (attributes_.wq_signature && list.size() >= spec::connectx::rq_signature_entry::kSize) {
    list = list.subspan(spec::connectx::rq_signature_entry::kSize);
  }
  request.cookie = next_;
  decode_scatter_list(list, request.sges);
  next_ = static_cast<std::uint16_t>(next);
  ++consumed_;
  return Fetch::kRequest;
}

bool SharedReceiveQueue::take_limit_event() {
  if (attributes_.limit == 0 || failed_) return false;
  if (static_cast<std::uint16_t>(posted_ - consumed_) >= attributes_.limit) return false;
  const auto available = read_available();
  if (!available || *available >= attributes_.limit) return false;
  attributes_.limit = 0;
  return true;
}

bool SharedReceiveQueue::take_failure() { return failed_ && !std::exchange(failure_told_, true); }

Fetch SharedReceiveQueue::fail(const char* reason) {
  failed_ = true;
  util::log(util::LogLevel::kWarning, "SRQ {:#x} failed: {}", number_, reason);
  return Fetch::kUnreadable;
}

}  // namespace softhca::connectx

#include "connectx/queue/work_queue.h"

#include <string_view>
#include <utility>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

namespace {

using spec::connectx::wq_type;
using WqLayout = spec::connectx::wq;

constexpr std::string_view kWorkQueueTable = "PRM Table 55";

}  // namespace

QueuePlace place_of(util::View<WqLayout> wq, std::span<const std::byte> pas) {
  QueuePlace place{
      .log_page_size = wq.get(WqLayout::log_wq_pg_sz),
      .page_offset = wq.get(WqLayout::page_offset),
      .size = std::uint64_t{1} << (wq.get(WqLayout::log_wq_sz) + wq.get(WqLayout::log_wq_stride)),
      .pas = pas,
      .dbr_addr = wq.get(WqLayout::dbr_addr)};
  place.set_umem(wq.get(WqLayout::wq_umem_valid) != 0, wq.get(WqLayout::wq_umem_id),
                 wq.get(WqLayout::wq_umem_offset));
  place.set_dbr_umem(wq.get(WqLayout::dbr_umem_valid) != 0, wq.get(WqLayout::dbr_umem_id));
  return place;
}

tl::expected<WorkQueue, Refusal> WorkQueueMaker::make_queue(util::View<WqLayout> wq,
                                                            std::span<const std::byte> pas,
                                                            unsigned record_dword) {
  if (wq_type(wq.get(WqLayout::wq_type)) != wq_type::CYCLIC) {
    return refuse(Status::BAD_PARAM, kWorkQueueTable, "wq_type is not WQ_CYCLIC");
  }
  // Linux creates its drop RQ with PD 0, which is never allocated. This is harmless: no key has
  // that PD, and no WQE is ever posted to that RQ.
  if (wq.get(WqLayout::pd) != 0 && !resources_.pds().contains(Pd(wq.get(WqLayout::pd)))) {
    return refuse(Status::BAD_RESOURCE, kWorkQueueTable, "unknown PD");
  }
  if (wq.get(WqLayout::log_wq_sz) > limits_.log_max_wq_sz) {
    return refuse(Status::EXCEED_LIM, kWorkQueueTable, "log_wq_sz above log_max_wq_sz");
  }
  const unsigned log_stride = wq.get(WqLayout::log_wq_stride);
  const unsigned log_size = wq.get(WqLayout::log_wq_sz);
  auto queue = mapper_.map(place_of(wq, pas), kWorkQueueTable);
  if (!queue) return tl::unexpected(queue.error());
  const Pd pd(wq.get(WqLayout::pd));
  return WorkQueue{.pd = pd,
                   .uar_page = {},
                   .is_signed = wq.get(WqLayout::wq_signature) != 0,
                   .pd_use = pd == Pd() ? hca::Use() : resources_.pds().use(pd),
                   .uar_use = {},
                   .queue = *std::move(queue),
                   .ring = hca::WorkRing({0, log_stride, log_size, record_dword})};
}

tl::expected<WorkQueue, Refusal> WorkQueueMaker::make_send(util::View<WqLayout> wq,
                                                           std::span<const std::byte> pas) {
  // With another stride, the ring's counters would be ambiguous.
  static_assert(Limits{}.log_min_stride_sz_sq == 6 && Limits{}.log_max_stride_sz_sq == 6);
  const auto log_stride = wq.get(WqLayout::log_wq_stride);
  if (log_stride < limits_.log_min_stride_sz_sq || log_stride > limits_.log_max_stride_sz_sq) {
    return refuse(Status::EXCEED_LIM, "PRM 7.4.1.1", "stride of a send queue is not 64 bytes");
  }
  const UarPage uar_page(wq.get(WqLayout::uar_page));
  if (!resources_.uars().contains(uar_page)) {
    return refuse(Status::BAD_RESOURCE, kWorkQueueTable, "unknown UAR page");
  }
  auto made = make_queue(wq, pas, kSendCounter);
  if (!made) return made;
  made->uar_page = uar_page;
  made->uar_use = resources_.uars().use(uar_page);
  return made;
}

tl::expected<WorkQueue, Refusal> WorkQueueMaker::make_receive(util::View<WqLayout> wq,
                                                              std::span<const std::byte> pas) {
  const unsigned log_stride = wq.get(WqLayout::log_wq_stride);
  if (log_stride < limits_.log_min_stride_sz_rq || log_stride > limits_.log_max_stride_sz_rq) {
    return refuse(Status::EXCEED_LIM, "PRM 7.4.1.2",
                  "log_wq_stride not from log_min_stride_sz_rq to log_max_stride_sz_rq");
  }
  return make_queue(wq, pas, kReceiveCounter);
}

}  // namespace softhca::connectx

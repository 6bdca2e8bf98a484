#include "connectx/queue/work_queue.h"

#include <string_view>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/device.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

namespace {

using spec::connectx::wq_type;
using L = spec::connectx::wq;

constexpr std::string_view kTable = "PRM Table 55";
/// Dwords of the doorbell record (PRM Table 24).
constexpr unsigned kReceiveCounter = 0;
constexpr unsigned kSendCounter = 1;
/// log_wq_pg_sz counts from 4 KiB. Larger pages than 1 GiB exist in no host.
constexpr unsigned kLogPageSizeBase = 12;
constexpr unsigned kLogPageSizeMax = 30;

tl::expected<WorkQueue, Refusal> make(Device& device, util::View<L> wq,
                                      std::span<const std::byte> pas, unsigned record_dword) {
  if (wq_type(wq.get(L::wq_type)) != wq_type::CYCLIC) {
    return refuse(Status::BAD_PARAM, kTable, "wq_type is not WQ_CYCLIC");
  }
  if (wq.get(L::wq_signature) != 0) {
    return refuse(Status::BAD_PARAM, kTable, "WQE signatures are not a capability");
  }
  if (wq.get(L::wq_umem_valid) != 0 || wq.get(L::dbr_umem_valid) != 0) {
    return refuse(Status::BAD_PARAM, kTable, "umem is not a capability");
  }
  // Linux creates the RQ that drops everything with PD 0, which nobody has: no key of it will
  // ever be found, and no WQE is ever posted to it.
  if (wq.get(L::pd) != 0 && !device.resources().pds().contains(wq.get(L::pd))) {
    return refuse(Status::BAD_RESOURCE, kTable, "unknown PD");
  }
  if (wq.get(L::log_wq_sz) > kLogWorkQueueMax) {
    return refuse(Status::EXCEED_LIM, kTable, "log_wq_sz above the limit");
  }
  if (wq.get(L::dbr_addr) % 4 != 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.4.2", "doorbell record not aligned to 4 bytes");
  }
  const unsigned log_page = wq.get(L::log_wq_pg_sz) + kLogPageSizeBase;
  if (log_page > kLogPageSizeMax) {
    return refuse(Status::BAD_PARAM, kTable, "log_wq_pg_sz above the limit");
  }
  const unsigned log_stride = wq.get(L::log_wq_stride);
  const unsigned log_size = wq.get(L::log_wq_sz);
  // The page offset has units of 1/64 of a page.
  const std::uint64_t offset = std::uint64_t{wq.get(L::page_offset)} << log_page >> 6;
  const std::uint64_t size = std::uint64_t{1} << (log_size + log_stride);
  auto buffer = QueueBuffer::from_pas(device.dma(), pas, log_page, offset, size);
  if (!buffer) return refuse(Status::BAD_PARAM, kTable, "fewer pages than the queue needs");
  auto reservation = device.resources().translations().reserve(buffer->pages().size());
  if (!reservation) return refuse(Status::NO_RESOURCES, kTable, "all translations are in use");
  return WorkQueue{rdma::Pd(wq.get(L::pd)), std::move(*buffer), std::move(*reservation),
                   DoorbellRecord(device.dma(), wq.get(L::dbr_addr)),
                   WorkRing({0, log_stride, log_size, record_dword})};
}

}  // namespace

tl::expected<WorkQueue, Refusal> make_send_work_queue(Device& device, util::View<L> wq,
                                                      std::span<const std::byte> pas) {
  // A stride of another size would make the ring's counters ambiguous.
  if (wq.get(L::log_wq_stride) != kLogSendStride) {
    return refuse(Status::BAD_PARAM, "PRM 7.4.1.1", "stride of a send queue is not 64 bytes");
  }
  if (!device.resources().uars().contains(wq.get(L::uar_page))) {
    return refuse(Status::BAD_RESOURCE, kTable, "unknown UAR page");
  }
  return make(device, wq, pas, kSendCounter);
}

tl::expected<WorkQueue, Refusal> make_receive_work_queue(Device& device, util::View<L> wq,
                                                         std::span<const std::byte> pas) {
  const unsigned log_stride = wq.get(L::log_wq_stride);
  if (log_stride < kLogReceiveStrideMin || log_stride > kLogReceiveStrideMax) {
    return refuse(Status::BAD_PARAM, "PRM 7.4.1.2",
                  "stride of a receive queue not 16 to 512 bytes");
  }
  return make(device, wq, pas, kReceiveCounter);
}

}  // namespace softhca::connectx

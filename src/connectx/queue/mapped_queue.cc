#include "connectx/queue/mapped_queue.h"

#include <utility>
#include <vector>

#include "util/endian.h"

namespace softhca::connectx {

namespace {

constexpr std::uint32_t kLogPageSizeBase = 12;
constexpr std::uint32_t kLogPageParts = 6;
constexpr std::size_t kPasSize = sizeof(pcie::Iova);
constexpr std::uint64_t kRecordSize = 8;
constexpr std::string_view kQueueUmem = "mlx5 driver interface: UMEM";
/// Cost of copying a page of a UMEM into a queue's page list (util::WorkBudget).
constexpr std::int64_t kPageWork = 5;

/// The low 12 bits of a PAS are reserved (PRM Table 120).
constexpr pcie::Iova kPageMask = ~pcie::Iova{0xFFF};

}  // namespace

tl::expected<QueueMapper::Pages, Refusal> QueueMapper::read_list(const QueuePlace& place,
                                                                 std::string_view section) const {
  Pages pages;
  pages.log_size = place.log_page_size + kLogPageSizeBase;
  // The manual requires page_offset 0 for some queues, but drivers begin the queues of processes in
  // the middle of a page.
  pages.offset = std::uint64_t{place.page_offset} << (pages.log_size - kLogPageParts);
  const auto count = hca::QueueMemory::pages_needed(pages.log_size, pages.offset, place.size);
  if (place.pas.size() / kPasSize < count) {
    return refuse(Status::BAD_INPUT_LEN, section, "fewer pages than the queue needs");
  }
  auto reservation = translations_.reserve(count);
  if (!reservation) return refuse(Status::NO_RESOURCES, section, "all translations are in use");
  pages.translations = *std::move(reservation);
  pages.list.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    pages.list[i] = util::load_be64(place.pas.data() + i * kPasSize) & kPageMask;
  }
  return pages;
}

/// Copies the UMEM's pages to a list of the queue, so that accesses are as fast as for other
/// queues.
tl::expected<QueueMapper::Pages, Refusal> QueueMapper::read_umem(const QueuePlace& place) const {
  auto* umem = user_memories_.find(place.umem->id);
  if (umem == nullptr) return refuse(Status::BAD_RESOURCE, kQueueUmem, "unknown UMEM of a queue");
  if (!umem->contains(place.umem->offset, place.size)) {
    return refuse(Status::BAD_PARAM, kQueueUmem, "the queue passes the end of its UMEM");
  }
  Pages pages;
  pages.log_size = umem->log_page_size();
  const auto position = umem->page_offset() + place.umem->offset;
  const auto first = position >> pages.log_size;
  pages.offset = position - (first << pages.log_size);
  const auto count = hca::QueueMemory::pages_needed(pages.log_size, pages.offset, place.size);
  auto reservation = translations_.reserve(count);
  if (!reservation) return refuse(Status::NO_RESOURCES, kQueueUmem, "all translations are in use");
  pages.translations = *std::move(reservation);
  work_.charge(static_cast<std::int64_t>(count) * kPageWork);
  pages.list.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (place.is_written && !umem->writable(first + i)) {
      return refuse(Status::BAD_PARAM, kQueueUmem, "the UMEM of the queue cannot be written to");
    }
    pages.list[i] = UserMemory::page_address(umem->entry(first + i));
  }
  pages.use = umem->use();
  return pages;
}

CommandResult QueueMapper::find_record(const QueuePlace& place, std::string_view section,
                                       MappedQueue& queue) const {
  queue.dbr_addr = place.dbr_addr;
  auto address = place.dbr_addr;
  if (place.dbr_umem) {
    auto found = find_record_in_umem(place, queue.record_use);
    if (!found) return tl::unexpected(found.error());
    address = *found;
  }
  if (address % place.record_alignment != 0) {
    return refuse(Status::BAD_PARAM, section, "the doorbell record is not aligned");
  }
  queue.record = record(address);
  return {};
}

/// The bus address of the record. @pre place.dbr_umem
tl::expected<pcie::Iova, Refusal> QueueMapper::find_record_in_umem(const QueuePlace& place,
                                                                   hca::Use& use) const {
  auto* umem = user_memories_.find(*place.dbr_umem);
  if (umem == nullptr) {
    return refuse(Status::BAD_RESOURCE, kQueueUmem, "unknown UMEM of a doorbell record");
  }
  if (!umem->contains(place.dbr_addr, kRecordSize)) {
    return refuse(Status::BAD_PARAM, kQueueUmem, "the doorbell record passes the end of its UMEM");
  }
  const auto address = umem->address(place.dbr_addr);
  if (umem->address(place.dbr_addr + kRecordSize - 1) != address + kRecordSize - 1) {
    return refuse(Status::BAD_PARAM, kQueueUmem, "the doorbell record lies in two pages");
  }
  use = umem->use();
  return address;
}

tl::expected<MappedQueue, Refusal> QueueMapper::map(const QueuePlace& place,
                                                    std::string_view section) const {
  MappedQueue queue;
  if (auto found = find_record(place, section, queue); !found) {
    return tl::unexpected(found.error());
  }
  auto pages = place.umem ? read_umem(place) : read_list(place, section);
  if (!pages) return tl::unexpected(pages.error());
  queue.memory = hca::QueueMemory::over_pages(dma_, std::move(pages->list), pages->log_size,
                                              pages->offset, place.size);
  queue.translations = std::move(pages->translations);
  queue.memory_use = std::move(pages->use);
  queue.in_umem = place.umem.has_value();
  return queue;
}

void write_page_list(std::span<std::byte> out, std::span<const pcie::Iova> pages) {
  for (const auto page : pages) {
    if (out.size() < kPasSize) return;
    util::store_be64(out.data(), page);
    out = out.subspan(kPasSize);
  }
}

}  // namespace softhca::connectx

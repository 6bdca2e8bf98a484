#include "connectx/queue/mapped_queue.h"

#include <utility>
#include <vector>

#include "util/endian.h"

namespace softhca::connectx {

namespace {

constexpr std::uint32_t kLogPageSizeBase = 12;
constexpr std::uint32_t kLogPageParts = 6;
constexpr std::size_t kPasSize = sizeof(pcie::Iova);
constexpr std::uint64_t kRecordAlignment = 4;

/// The low 12 bits of a PAS are reserved (PRM Table 120).
constexpr pcie::Iova kPageMask = ~pcie::Iova{0xFFF};

}  // namespace

tl::expected<MappedQueue, Refusal> QueueMapper::map(const QueuePlace& place,
                                                    std::string_view section) const {
  const auto log_page_size = place.log_page_size + kLogPageSizeBase;
  // The manual wants page_offset 0 for some queues; drivers place users' queues in parts of a page.
  const auto offset = std::uint64_t{place.page_offset} << (log_page_size - kLogPageParts);
  const auto count = hca::QueueMemory::pages_needed(log_page_size, offset, place.size);
  if (place.pas.size() / kPasSize < count) {
    return refuse(Status::BAD_INPUT_LEN, section, "fewer pages than the queue needs");
  }
  if (place.dbr_addr % kRecordAlignment != 0) {
    return refuse(Status::BAD_PARAM, section, "the doorbell record is not aligned to 4 bytes");
  }
  auto reservation = translations_.reserve(count);
  if (!reservation) return refuse(Status::NO_RESOURCES, section, "all translations are in use");
  std::vector<pcie::Iova> pages(count);
  for (std::size_t i = 0; i < count; ++i) {
    pages[i] = util::load_be64(place.pas.data() + i * kPasSize) & kPageMask;
  }
  return MappedQueue{
      hca::QueueMemory::over_pages(dma_, std::move(pages), log_page_size, offset, place.size),
      record(place.dbr_addr), *std::move(reservation)};
}

void write_page_list(std::span<std::byte> out, std::span<const pcie::Iova> pages) {
  for (const auto page : pages) {
    if (out.size() < kPasSize) return;
    util::store_be64(out.data(), page);
    out = out.subspan(kPasSize);
  }
}

}  // namespace softhca::connectx

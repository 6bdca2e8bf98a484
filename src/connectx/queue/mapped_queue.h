// The host memory of a queue, as its context tells: page list, place in the first page, doorbell
// record. Every queue of the device is made here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "connectx/command/command.h"
#include "hca/doorbell_record.h"
#include "hca/queue_memory.h"
#include "pcie/dma_space.h"
#include "util/budget.h"

namespace softhca::connectx {

/// The fields of a context that say where a queue lies.
struct QueuePlace {
  std::uint32_t log_page_size = 0;  ///< of the list's pages, in units of 4 KiB
  std::uint32_t page_offset = 0;    ///< of the queue in the first page, in units of 1/64 page
  std::uint64_t size = 0;           ///< bytes
  std::span<const std::byte> pas;   ///< the page list: physical addresses (PRM Table 120)
  pcie::Iova dbr_addr = 0;          ///< of the doorbell record; 0 for an EQ, which has none
};

struct MappedQueue {
  hca::QueueMemory memory;
  hca::DoorbellRecord record;
  util::Budget::Reservation translations;  ///< for the page list
};

/// Makes queues.
class QueueMapper {
 public:
  /// `translations`: how many page addresses the device may keep.
  QueueMapper(pcie::DmaSpace& dma, util::Budget& translations)
      : dma_(dma), translations_(translations) {}

  /// `section`: of the command that makes the queue.
  tl::expected<MappedQueue, Refusal> map(const QueuePlace& place, std::string_view section) const;
  /// A QP may get another record on its way to INIT.
  hca::DoorbellRecord record(pcie::Iova address) const { return {dma_, address}; }

 private:
  pcie::DmaSpace& dma_;
  util::Budget& translations_;
};

/// The page list of a queue into the output of a query command, as far as the sender has room.
void write_page_list(std::span<std::byte> out, std::span<const pcie::Iova> pages);

}  // namespace softhca::connectx

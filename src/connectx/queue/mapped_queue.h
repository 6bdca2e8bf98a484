// The host memory of a queue, as its context tells: page list, place in the first page, doorbell
// record. Every queue of the device is made here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/command/command.h"
#include "connectx/queue/user_memory.h"
#include "hca/doorbell_record.h"
#include "hca/queue_memory.h"
#include "hca/use.h"
#include "pcie/dma_space.h"
#include "util/budget.h"

namespace softhca::connectx {

/// A place in the memory of a user context.
struct UmemPlace {
  UmemId id;
  std::uint64_t offset = 0;  ///< bytes
};

/// The fields of a context that say where a queue lies.
struct QueuePlace {
  std::uint32_t log_page_size = 0;  ///< of the list's pages, in units of 4 KiB
  std::uint32_t page_offset = 0;    ///< of the queue in the first page, in units of 1/64 page
  std::uint64_t size = 0;           ///< bytes
  std::span<const std::byte> pas;   ///< the page list: physical addresses (PRM Table 120)
  pcie::Iova dbr_addr = 0;          ///< of the doorbell record; 0 for an EQ, which has none
  bool is_written = false;          ///< the device writes its entries, and does not only read them
  /// Where the queue lies, instead of in pages of a list.
  std::optional<UmemPlace> umem{};
  /// In which `dbr_addr` is an offset.
  std::optional<UmemId> dbr_umem{};

  void set_umem(bool valid, std::uint32_t id, std::uint64_t offset) {
    if (valid) umem = UmemPlace{.id = UmemId(id), .offset = offset};
  }
  void set_dbr_umem(bool valid, std::uint32_t id) {
    if (valid) dbr_umem = UmemId(id);
  }
};

// Dwords of the doorbell record of a work queue (PRM Table 24).
inline constexpr unsigned kReceiveCounter = 0;
inline constexpr unsigned kSendCounter = 1;

struct MappedQueue {
  hca::QueueMemory memory;
  hca::DoorbellRecord record;
  util::Budget::Reservation translations;  ///< for the page list
  std::uint64_t dbr_addr = 0;              ///< as software told it
  hca::Use memory_use{};                   ///< of the UMEM that the queue lies in
  hca::Use record_use{};                   ///< of the UMEM that its doorbell record lies in
  bool in_umem = false;

  /// What query commands tell of the pages: none for a queue in a UMEM, whose owner gave none.
  std::span<const pcie::Iova> told(std::span<const pcie::Iova> pages) const {
    return in_umem ? std::span<const pcie::Iova>() : pages;
  }
};

/// Makes queues.
class QueueMapper {
 public:
  /// `translations`: how many page addresses the device may keep. `work` pays for pages that no
  /// input of a command has paid for.
  QueueMapper(pcie::DmaSpace& dma, util::Budget& translations, UserMemories& user_memories,
              util::WorkBudget& work)
      : dma_(dma), translations_(translations), user_memories_(user_memories), work_(work) {}

  /// `section`: of the command that makes the queue.
  tl::expected<MappedQueue, Refusal> map(const QueuePlace& place, std::string_view section) const;
  /// A QP may get another record on its way to INIT.
  hca::DoorbellRecord record(pcie::Iova address) const { return {dma_, address}; }

 private:
  struct Pages {
    std::vector<pcie::Iova> list;
    unsigned log_size = 12;
    std::uint64_t offset = 0;  ///< of the queue in the first
    util::Budget::Reservation translations;
    hca::Use use{};
  };

  tl::expected<Pages, Refusal> read_list(const QueuePlace& place, std::string_view section) const;
  tl::expected<Pages, Refusal> read_umem(const QueuePlace& place) const;
  CommandResult find_record(const QueuePlace& place, std::string_view section,
                            MappedQueue& queue) const;

  pcie::DmaSpace& dma_;
  util::Budget& translations_;
  UserMemories& user_memories_;
  util::WorkBudget& work_;
};

/// The page list of a queue into the output of a query command, as far as the sender has room.
void write_page_list(std::span<std::byte> out, std::span<const pcie::Iova> pages);

}  // namespace softhca::connectx

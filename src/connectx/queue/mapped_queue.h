// Maps the host memory of any queue from its context: page list, offset in the first page, doorbell
// record.
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

// Alignment of doorbell records, in bytes (PRM 7.4.2, 7.12.2).
inline constexpr std::uint64_t kWorkRecordAlignment = 4;
inline constexpr std::uint64_t kCqRecordAlignment = 8;

/// A location in the memory of a user context.
struct UmemPlace {
  UmemId id;
  std::uint64_t offset = 0;  ///< bytes
};

/// The fields of a context that locate a queue.
struct QueuePlace {
  std::uint32_t log_page_size = 0;  ///< of the list's pages, in units of 4 KiB
  std::uint32_t page_offset = 0;    ///< the queue's offset in the first page, in 1/64 page
  std::uint64_t size = 0;           ///< bytes
  std::span<const std::byte> pas;   ///< the page list: physical addresses (PRM Table 120)
  pcie::Iova dbr_addr = 0;          ///< address of the doorbell record; 0 for an EQ, which has none
  bool is_written = false;          ///< true: the device writes entries; false: it reads them
  std::uint64_t record_alignment = kWorkRecordAlignment;  ///< of `dbr_addr`
  /// If set, the queue is in this UMEM, and `pas` is not used.
  std::optional<UmemPlace> umem{};
  /// If set, `dbr_addr` is an offset in this UMEM.
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
  std::uint64_t dbr_addr = 0;              ///< as in the context
  hca::Use memory_use{};                   ///< keeps the UMEM of the queue
  hca::Use record_use{};                   ///< keeps the UMEM of the doorbell record
  bool in_umem = false;

  /// The pages that query commands report. None for a queue in a UMEM, since its command had none.
  std::span<const pcie::Iova> reported(std::span<const pcie::Iova> pages) const {
    return in_umem ? std::span<const pcie::Iova>() : pages;
  }
};

/// Maps the memory of queues.
class QueueMapper {
 public:
  /// `translations`: limits the page addresses that the device stores. `work` is charged for pages
  /// of a UMEM, because they are not part of the command's input.
  QueueMapper(pcie::DmaSpace& dma, util::Budget& translations, UserMemories& user_memories,
              util::WorkBudget& work)
      : dma_(dma), translations_(translations), user_memories_(user_memories), work_(work) {}

  /// `section`: the section of the command that creates the queue, for refusals.
  tl::expected<MappedQueue, Refusal> map(const QueuePlace& place, std::string_view section) const;
  /// Maps another doorbell record, which RST2INIT may set.
  hca::DoorbellRecord record(pcie::Iova address) const { return {dma_, address}; }

 private:
  struct Pages {
    std::vector<pcie::Iova> list;
    unsigned log_size = 12;
    std::uint64_t offset = 0;  ///< offset of the queue in the first page
    util::Budget::Reservation translations;
    hca::Use use{};
  };

  tl::expected<Pages, Refusal> read_list(const QueuePlace& place, std::string_view section) const;
  tl::expected<Pages, Refusal> read_umem(const QueuePlace& place) const;
  CommandResult find_record(const QueuePlace& place, std::string_view section,
                            MappedQueue& queue) const;
  tl::expected<pcie::Iova, Refusal> find_record_in_umem(const QueuePlace& place,
                                                        hca::Use& use) const;

  pcie::DmaSpace& dma_;
  util::Budget& translations_;
  UserMemories& user_memories_;
  util::WorkBudget& work_;
};

/// Writes the page list of a queue to the output of a query command, as far as it fits.
void write_page_list(std::span<std::byte> out, std::span<const pcie::Iova> pages);

}  // namespace softhca::connectx

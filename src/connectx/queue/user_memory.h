// Memory of user contexts (UMEM, mlx5 driver interface 7.11). A process that creates queues and
// keys with its own commands cannot name bus addresses. The kernel stores these in a UMEM, and the
// process passes the UMEM's number and an offset.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/command/command.h"
#include "hca/object_table.h"
#include "hca/use.h"
#include "pcie/dma_space.h"
#include "util/budget.h"

namespace softhca::connectx {

/// A list of host pages. Queues, doorbell records and keys in it hold a use of it.
class UserMemory : public hca::Used {
 public:
  struct Shape {
    unsigned log_page_size = 12;
    std::uint64_t page_offset = 0;  ///< offset of byte 0 in the first page
    std::uint64_t pages = 0;
  };

  UserMemory(UmemId id, const Shape& shape, util::Budget::Reservation translations)
      : id_(id), shape_(shape), translations_(std::move(translations)) {}

  UmemId id() const { return id_; }
  unsigned log_page_size() const { return shape_.log_page_size; }
  std::uint64_t page_offset() const { return shape_.page_offset; }
  std::uint64_t size() const {  ///< in bytes
    return (shape_.pages << shape_.log_page_size) - shape_.page_offset;
  }
  bool contains(std::uint64_t offset, std::uint64_t length) const {
    return offset <= size() && length <= size() - offset;
  }

  /// Appends the next page. `entry`: as in the command (mtt_entry: address and rights).
  void append(std::uint64_t entry) { entries_.push_back(entry); }
  bool complete() const { return entries_.size() == shape_.pages; }
  std::uint64_t known_pages() const { return entries_.size(); }
  std::uint64_t known_pages_left() const { return shape_.pages - entries_.size(); }
  /// @pre page < number of pages
  std::uint64_t entry(std::uint64_t page) const { return entries_[page]; }
  /// Bus address of a byte. @pre contains(offset, 1)
  pcie::Iova address(std::uint64_t offset) const;
  /// Removes pages until `work` is spent. True if none is left. The UMEM must not be used after the
  /// first call.
  bool shrink(util::WorkBudget& work);

  /// True if the device may write to a page. @pre as entry()
  bool writable(std::uint64_t page) const;

  static pcie::Iova page_address(std::uint64_t entry) { return entry & ~pcie::Iova{0xFFF}; }

 private:
  UmemId id_;
  Shape shape_;
  /// A deque, because growing it moves no entries, and its memory is freed in pieces.
  std::deque<std::uint64_t> entries_;
  util::Budget::Reservation translations_;
};

/// All UMEMs of a device.
class UserMemories {
 public:
  /// `translations`: limits the page addresses that the device stores.
  UserMemories(util::Budget& translations, const Limits& limits);

  /// CREATE_UMEM. Reading a long list of pages takes several turns.
  tl::expected<UmemId, Refusal> create(const Command& command);
  /// DESTROY_UMEM. May take several turns.
  CommandResult destroy(UmemId id, const Command& command);
  UserMemory* find(UmemId id) { return memories_.find(id); }
  std::size_t count() const { return memories_.count(); }
  /// Destroys UMEMs until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  tl::expected<UserMemory*, Refusal> begin(const Command& command);

  util::Budget& translations_;
  hca::ObjectTable<UserMemory, UmemId> memories_;
  UserMemory* partial_ = nullptr;  ///< the UMEM that an unfinished CREATE_UMEM fills
  std::uint32_t shrunk_ = 0;       ///< dismantle() has removed the pages of UMEMs below this number
};

}  // namespace softhca::connectx

// Memory keys (PRM 6, 12.5): from MKey contexts and translation lists to the keys of rdma/.
//
// One table holds the keys themselves, for both sides of the device. Beside it are their numbers,
// and what QUERY_MKEY must tell.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/command/command.h"
#include "rdma/memory_key.h"
#include "spec/connectx/mkey.h"
#include "util/budget.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

class Device;

class MemoryKeys {
 public:
  /// PRM 6.1: an MKey is the index of its context, and below it 8 bits of the driver's choice.
  static constexpr rdma::KeyShape kShape{8, 24};
  /// The key that ends a scatter list early (drivers that do not ask for another use it).
  static constexpr std::uint32_t kTerminator = 0x100;
  /// The reserved LKey: the bus address space, for QPs with `rlky` (PRM 12.5.4).
  static constexpr std::uint32_t kReservedLkey = 0x200;
  /// Indexes below are left to the special keys above.
  static constexpr std::uint32_t kFirstIndex = 0x10;

  explicit MemoryKeys(Device& device);

  rdma::KeyTable& table() { return table_; }

  /// CREATE_MKEY. The new index.
  tl::expected<std::uint32_t, Refusal> create(const Command& command);
  CommandResult query(std::uint32_t index, const Command& command);
  CommandResult destroy(std::uint32_t index);
  std::size_t count() const { return count_; }

 private:
  struct Record {
    std::array<std::byte, spec::connectx::mkey_context::kSize> context;
    std::array<std::byte, 32> first_translations;
    bool page_access;
    util::Budget::Reservation translations;
  };

  Device& device_;
  rdma::KeyTable table_;
  util::IdAllocator indexes_;
  std::vector<std::unique_ptr<Record>> records_;  ///< by index
  std::size_t count_ = 0;
};

}  // namespace softhca::connectx

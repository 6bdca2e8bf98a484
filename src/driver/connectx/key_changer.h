// Changes memory keys in use, in place, by a queue pair dedicated to it (service REG_UMR), as
// Linux's driver does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/queue_pair.h"

namespace softhca::driver::connectx {

/// New memory of a key.
struct KeyMemory {
  static constexpr std::size_t kPagesMax = 8;  ///< of the shortest list that a UMR writes
  std::uint64_t start = 0;                     ///< address in work requests
  std::uint64_t length = 0;
  unsigned log_page_size = 0;
  std::array<std::uint64_t, kPagesMax> pages{};  ///< bus addresses
  std::size_t page_count = 0;
};

/// The new rights and protection domain of a key, and its new memory if that changes.
struct KeyChange {
  std::uint32_t key = 0;  ///< LKey, which is the RKey
  std::uint32_t pd = 0;
  bool local_write = false, remote_read = false, remote_write = false, remote_atomic = false;
  std::optional<KeyMemory> memory = {};
};

class KeyChanger {
 public:
  KeyChanger(const KeyChanger&) = delete;
  KeyChanger& operator=(const KeyChanger&) = delete;

  /// `pd`: the queue pair's; keys may be of any PD.
  static util::Result<std::unique_ptr<KeyChanger>> create(ProtectionDomain& pd, Hca& hca);

  /// Changes the key and waits for it. Fails if the device refuses, as it does for keys without
  /// `umr_en`.
  util::Result<void> change(const KeyChange& change);

 private:
  KeyChanger(Hca& hca, std::unique_ptr<CompletionQueue> cq, std::unique_ptr<QueuePair> qp)
      : hca_(hca), cq_(std::move(cq)), qp_(std::move(qp)) {}

  Hca& hca_;
  std::unique_ptr<CompletionQueue> cq_;
  std::unique_ptr<QueuePair> qp_;
};

}  // namespace softhca::driver::connectx

// Differences between the document and the author's published driver: a card follows one or the
// other (docs/jingzhao.md#the-authors-driver).
#pragma once

#include <cstdint>

#include "jingzhao/identity.h"
#include "jingzhao/numbers.h"

namespace softhca::jingzhao {

enum class Profile : std::uint8_t { kDocument, kDriver };

struct ProfileRules {
  std::uint16_t device_id;
  std::uint64_t hcr_offset;  ///< offset in BAR0
  std::uint32_t msix_table;  ///< offset in BAR0
  std::uint32_t msix_pba;
  unsigned log_qps;
  unsigned log_cqs;
  unsigned log_mpts;
  /// A read of the HCR dword with `go` first completes the pending command. The driver tests `go`
  /// at another bit position, so it never waits.
  bool reads_finish_commands;
  /// WRITE_MTT may announce more entries than its mailbox holds; the device takes those in the
  /// mailbox. The driver announces the whole remaining list, and sends the rest with the next
  /// command.
  bool cuts_mtt_lists;
  /// A region of 2^64 - 1 bytes has bus addresses, as if `physical` were set. The driver's
  /// get_dma_mr gives it neither that bit nor pages.
  bool all_memory_is_physical;
};

inline constexpr ProfileRules kDocumentRules{.device_id = kDeviceId,
                                             .hcr_offset = 0x80000,
                                             .msix_table = 0x5400,
                                             .msix_pba = 0x5800,
                                             .log_qps = limits::kLogQps,
                                             .log_cqs = limits::kLogCqs,
                                             .log_mpts = limits::kLogMpts,
                                             .reads_finish_commands = false,
                                             .cuts_mtt_lists = false,
                                             .all_memory_is_physical = false};

inline constexpr ProfileRules kDriverRules{.device_id = kDriversDeviceId,
                                           .hcr_offset = 0,
                                           .msix_table = 0x20000,
                                           .msix_pba = 0x30000,
                                           .log_qps = 16,
                                           .log_cqs = 16,
                                           .log_mpts = 17,
                                           .reads_finish_commands = true,
                                           .cuts_mtt_lists = true,
                                           .all_memory_is_physical = true};

constexpr const ProfileRules& rules_of(Profile profile) {
  return profile == Profile::kDriver ? kDriverRules : kDocumentRules;
}

}  // namespace softhca::jingzhao

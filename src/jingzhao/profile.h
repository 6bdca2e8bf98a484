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
  /// QPN 0 and 1 belong to the SMI and the GSI. The driver gives them to its first users.
  bool has_special_qps;
  /// Numbers of QPs and CQs count modulo the table's size. The driver counts on past it, so that a
  /// number comes back late; the RTL ignores the upper bits.
  bool numbers_wrap;
  /// opt_param_mask has the bits of Linux `mthca`, not those of table A1-3.
  bool has_mthca_masks;
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
                                             .all_memory_is_physical = false,
                                             .has_special_qps = true,
                                             .numbers_wrap = false,
                                             .has_mthca_masks = false};

inline constexpr ProfileRules kDriverRules{.device_id = kDriversDeviceId,
                                           .hcr_offset = 0,
                                           .msix_table = 0x20000,
                                           .msix_pba = 0x30000,
                                           .log_qps = 16,
                                           .log_cqs = 16,
                                           .log_mpts = 17,
                                           .reads_finish_commands = true,
                                           .cuts_mtt_lists = true,
                                           .all_memory_is_physical = true,
                                           .has_special_qps = false,
                                           .numbers_wrap = true,
                                           .has_mthca_masks = true};

/// The places in the tables that the numbers of software stand for.
class Numbering {
 public:
  constexpr Numbering(const ProfileRules& rules, unsigned log_qps, unsigned log_cqs)
      : qpn_mask_(rules.numbers_wrap ? mask(log_qps) : UINT32_MAX),
        cqn_mask_(rules.numbers_wrap ? mask(log_cqs) : UINT32_MAX) {}

  /// The bits of a QPN that count.
  std::uint32_t qpn_mask() const { return qpn_mask_; }
  Qpn qpn(Qpn number) const { return Qpn(number.value() & qpn_mask_); }
  Cqn cqn(std::uint32_t number) const { return Cqn(number & cqn_mask_); }

 private:
  static constexpr std::uint32_t mask(unsigned log_count) {
    return (std::uint32_t{1} << log_count) - 1;
  }
  std::uint32_t qpn_mask_;
  std::uint32_t cqn_mask_;
};

constexpr const ProfileRules& rules_of(Profile profile) {
  return profile == Profile::kDriver ? kDriverRules : kDocumentRules;
}

}  // namespace softhca::jingzhao

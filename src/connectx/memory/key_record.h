// The part of a memory key that rdma::MemoryKey does not hold: its context, its list as the driver
// wrote it, and the UMR that is changing it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/memory/key_list.h"
#include "connectx/memory/long_update.h"
#include "connectx/memory/umr.h"
#include "hca/use.h"
#include "rdma/memory_key.h"
#include "spec/connectx/mkey.h"
#include "util/budget.h"
#include "util/field.h"

namespace softhca::connectx {

struct KeyRecord {
  using AccessMode = spec::connectx::mkey_access_mode;

  explicit KeyRecord(MKeyIndex the_index) : index(the_index) {}

  /// True if the UMR takes several turns: its list, or the list that it changes, is too long.
  bool takes_turns(const Umr& umr, AccessMode mode) const;
  /// True if this user's UMR may continue. False if the UMR of another QP is changing the key.
  bool may_go_on(const UmrUser& user);
  /// Begins a UMR that takes several turns. `budget`: that of all translations.
  rdma::LocalOutcome begin_long(const Umr& umr, const UmrUser& user, AccessMode mode,
                                util::Budget& budget);
  /// Extends the key's reservation in the function's budget to all translations up to the UMR's
  /// last one. False if the budget does not suffice.
  bool reserve(const Umr& umr, AccessMode mode, util::Budget& budget);

  /// Replaces the whole list of a KLM key. A list that contradicts itself changes nothing.
  rdma::LocalOutcome take_keys(rdma::MemoryKey& key, KeyList new_list, KeyList::Meaning meaning);
  // Write entries of an MTT or a KSM key from an octword on.
  void write_pages(rdma::MemoryKey& key, std::size_t octword, std::span<const std::byte> entries);
  void write_equal_pieces(rdma::MemoryKey& key, std::size_t octword,
                          std::span<const std::byte> entries);
  /// Applies the UMR's BSF, and its other fields of a signature key. `new_context`: the key's
  /// context after the UMR.
  void sign(const Umr& umr, util::View<spec::connectx::mkey_context> new_context,
            const rdma::SignatureRules& rules, rdma::BlockSignature& signature);

  MKeyIndex index;
  std::array<std::byte, spec::connectx::mkey_context::kSize> context{};
  std::array<std::byte, 32> first_translations{};
  bool page_access = false;
  bool takes_umr = false;
  KeyList list{};  ///< of a KLM key
  /// BSF of a signature key, from the last UMR that set it.
  std::array<std::byte, spec::connectx::block_signature_format::kSize> bsf{};
  std::unique_ptr<LongUpdate> long_update{};
  util::Budget::Reservation translations{};
  std::uint64_t reserved = 0;  ///< number of translations reserved
  hca::Use pd_use{};
  hca::Use umem_use{};

 private:
  void show(std::size_t octword, std::span<const std::byte> entries);
};

/// Octwords of the longest list that is loaded in one turn, without a LongUpdate.
inline constexpr std::size_t kShortList = 256;

/// Adds some of the pieces between the end of the list and the UMR's first piece. They have no
/// memory until a UMR sets them. False if all of them exist.
bool add_pieces(rdma::KeyTable& table, rdma::MemoryKey& key, const Umr& umr);

}  // namespace softhca::connectx

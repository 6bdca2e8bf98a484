// Converts MKey contexts and page lists (PRM Tables 10 and 12) to the terms of rdma/.
#pragma once

#include <cstdint>

#include "rdma/memory_key.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::connectx {

inline constexpr std::size_t kOctword = 16;
inline constexpr std::size_t kPagesPerOctword = kOctword / spec::connectx::mtt_entry::kSize;
inline constexpr unsigned kLogMaxPage = 48;
/// A KSM piece has at most 2 GiB.
inline constexpr unsigned kLogMaxPiece = 31;
/// Cost of a list entry (util::WorkBudget).
inline constexpr std::int64_t kEntryWork = 5;

spec::connectx::mkey_access_mode access_mode(util::View<spec::connectx::mkey_context> context);
/// True for lists of keys (KLM) and lists of pieces of one size (KSM).
constexpr bool is_indirect(spec::connectx::mkey_access_mode mode) {
  return mode == spec::connectx::mkey_access_mode::KLM ||
         mode == spec::connectx::mkey_access_mode::KSM;
}
/// All attributes except the key's number and its translations.
rdma::MemoryKey::Attributes attributes_of(util::View<spec::connectx::mkey_context> context);

/// Address and rights of a page.
rdma::PageTable::Page page_of(util::View<spec::connectx::mtt_entry> entry);

}  // namespace softhca::connectx

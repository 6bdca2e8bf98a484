#include "connectx/memory/key_record.h"

#include <algorithm>
#include <utility>

#include "connectx/memory/mkey_attributes.h"

namespace softhca::connectx {

using rdma::LocalOutcome;

namespace {

using MkeyLayout = spec::connectx::mkey_context;
using AccessMode = spec::connectx::mkey_access_mode;
using Mtt = spec::connectx::mtt_entry;

/// Limit on the pieces of one size that are added in one step.
constexpr std::size_t kPiecesAtOnce = 2048;
/// How often UMRs of other QPs wait for an unfinished UMR of the same key. Its QP may never
/// continue it: the QP may be in error, be destroyed, or wait for its peer.
constexpr unsigned kPatience = 16;

}  // namespace

bool KeyRecord::takes_turns(const Umr& umr, AccessMode mode) const {
  if (umr.octwords() == 0) return false;
  // A list of keys is decoded up to the end of the UMR's part, which may lie far behind its old
  // end.
  const bool is_decoded = mode == AccessMode::KLM;
  const auto end = umr.octwords() + (is_decoded ? umr.first_octword() : 0);
  return std::max<std::uint64_t>(end, list.octwords()) > kShortList;
}

bool KeyRecord::may_go_on(const UmrUser& user) {
  auto& update = long_update;
  if (update == nullptr) return true;
  if (update->qpn == user.qpn) {
    update->waited = 0;
    // If the QP does not continue a UMR, the update is from before a reset, or of an earlier QP.
    if (!user.again) update = nullptr;
    return true;
  }
  if (++update->waited <= kPatience) return false;
  update = nullptr;
  return true;
}

LocalOutcome KeyRecord::begin_long(const Umr& umr, const UmrUser& user, AccessMode mode,
                                   util::Budget& budget) {
  if (!reserve(umr, mode, budget)) return refused(WqeFault::kUmrNoTranslations);
  auto update = std::make_unique<LongUpdate>(user.qpn, umr.octwords() * kOctword);
  if (update->list == nullptr) return refused(WqeFault::kUmrNoTranslations);
  if (mode == AccessMode::KLM) {
    const auto end = static_cast<std::size_t>(umr.first_octword()) + umr.octwords();
    update->keys.reserve(std::max(list.octwords(), end));
  }
  if (umr.is_inline()) {
    std::ranges::copy(umr.translations(), update->list.get());
    update->read = update->size;
  }
  long_update = std::move(update);
  return {.unfinished = true};
}

bool KeyRecord::reserve(const Umr& umr, AccessMode mode, util::Budget& budget) {
  const auto octwords = umr.first_octword() + umr.octwords();
  const auto entries = is_indirect(mode) ? octwords : octwords * kPagesPerOctword;
  if (entries <= reserved) return true;
  translations = {};
  auto reservation = budget.reserve(entries);
  const bool enough = reservation.has_value();
  if (enough) reserved = entries;
  translations = enough ? *std::move(reservation) : *budget.reserve(reserved);
  return enough;
}

LocalOutcome KeyRecord::take_keys(rdma::MemoryKey& key, KeyList new_list,
                                  KeyList::Meaning meaning) {
  if (!meaning.adds_up) return refused(WqeFault::kUmrStrided);
  list = std::move(new_list);
  first_translations = list.first();
  key.load_pieces(std::move(meaning.pieces), std::move(meaning.pattern));
  return {};
}

void KeyRecord::write_pages(rdma::MemoryKey& key, std::size_t octword,
                            std::span<const std::byte> entries) {
  const auto first = octword * kPagesPerOctword;
  for (std::size_t i = 0; i != entries.size() / Mtt::kSize; ++i) {
    key.load_page(first + i, page_of(util::View<Mtt>(entries.subspan(i * Mtt::kSize, Mtt::kSize))));
  }
  show(octword, entries);
}

void KeyRecord::write_equal_pieces(rdma::MemoryKey& key, std::size_t octword,
                                   std::span<const std::byte> entries) {
  using Ksm = spec::connectx::ksm_entry;
  for (std::size_t i = 0; i != entries.size() / kOctword; ++i) {
    const util::View<Ksm> entry(entries.subspan(i * kOctword, kOctword));
    key.set_piece(octword + i, entry.get(Ksm::address), rdma::MKey(entry.get(Ksm::mkey)));
  }
  show(octword, entries);
}

/// Stores the translations that QUERY_MKEY reports.
void KeyRecord::show(std::size_t octword, std::span<const std::byte> entries) {
  const auto begin = octword * kOctword;
  if (begin >= first_translations.size()) return;
  const auto shown = std::span(first_translations).subspan(begin);
  std::copy_n(entries.begin(), std::min(shown.size(), entries.size()), shown.begin());
}

void KeyRecord::sign(const Umr& umr, util::View<MkeyLayout> new_context,
                     const rdma::SignatureRules& rules, rdma::BlockSignature& signature) {
  if (umr.bsf_octwords() != 0) {
    signature.set(rules);
    std::ranges::copy(umr.bsf().bytes(), bsf.begin());
  }
  signature.enable(new_context.get(MkeyLayout::bsf_en) != 0);
  // A driver counts the signature errors reported to it, and writes the lowest bit of its count.
  const auto count = MkeyLayout::expected_sigerr_count;
  if (util::View<MkeyLayout>(context).get(count) != new_context.get(count)) signature.arm();
}

bool add_pieces(rdma::KeyTable& table, rdma::MemoryKey& key, const Umr& umr) {
  const auto end = static_cast<std::size_t>(umr.first_octword());
  if (key.pieces() >= end) return false;
  const auto count = std::min(end - key.pieces(), kPiecesAtOnce);
  key.set_piece(key.pieces() + count - 1, 0, rdma::MKey{});
  table.work().charge(static_cast<std::int64_t>(count) * kEntryWork);
  return true;
}

}  // namespace softhca::connectx

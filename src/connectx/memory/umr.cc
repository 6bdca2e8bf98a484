#include "connectx/memory/umr.h"

#include <algorithm>
#include <array>
#include <limits>

#include "connectx/memory/memory_keys.h"
#include "connectx/memory/mkey_attributes.h"
#include "util/bits.h"

namespace softhca::connectx {

namespace {

using rdma::LocalOutcome;
using rdma::WorkStatus;
using spec::connectx::umr_check_free;
using MkeyLayout = spec::connectx::mkey_context;
using UmrMask = Umr::Mask;
using AccessMode = spec::connectx::mkey_access_mode;
using Mtt = spec::connectx::mtt_entry;

/// Translations are written in multiples of this many octwords.
constexpr std::size_t kAlignment = 4;
constexpr std::uint64_t kPointerAlignment = 2048;
/// Octwords of the longest list that is loaded in one turn, without a LongUpdate.
constexpr std::size_t kShortList = 256;
/// Cost of a UMR without its list (util::WorkBudget).
constexpr std::int64_t kUmrWork = 300;
/// Cost of a chunk of pages whose rights MemoryKey::refresh() compares.
constexpr std::int64_t kChunkWork = 2;
constexpr std::size_t kPagesPerOctword = kOctword / Mtt::kSize;
/// Limit on the pieces of one size that are added in one step.
constexpr std::size_t kPiecesAtOnce = 2048;

/// PRM 10.1.1: "HW will block changing fields that should not be changed."
bool mask_allowed(const Umr& umr, const UmrUser& user, bool signable) {
  util::Struct<UmrMask> rest;
  std::ranges::copy(umr.mask().bytes(), rest.bytes().begin());
  const auto take = [&](auto... bits) { (rest.set(bits, 0), ...); };
  take(UmrMask::len, UmrMask::log_page_size, UmrMask::start_addr, UmrMask::en_rinval, UmrMask::mkey,
       UmrMask::qpn, UmrMask::lr, UmrMask::lw, UmrMask::rr, UmrMask::rw, UmrMask::a,
       UmrMask::small_fence, UmrMask::free, UmrMask::relaxed_ordering_write);
  if (user.any_pd) take(UmrMask::pd);
  if (signable) take(UmrMask::bsf_en, UmrMask::sigerr);
  return std::ranges::all_of(rest.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

void take_fields(const Umr& umr, util::MutableView<MkeyLayout> to) {
  const auto mask = umr.mask();
  const auto from = umr.context();
  const auto take = [&](auto bit, auto... fields) {
    if (mask.get(bit) != 0) (to.set(fields, from.get(fields)), ...);
  };
  take(UmrMask::len, MkeyLayout::len);
  // When libmlx5 binds a memory window (a list of keys), this bit is a leftover of an older WQE. It
  // is not needed: the pieces always bound such a key.
  if (access_mode(to) != AccessMode::KLM) take(UmrMask::len, MkeyLayout::length64);
  take(UmrMask::log_page_size, MkeyLayout::log_page_size);
  take(UmrMask::start_addr, MkeyLayout::start_addr);
  take(UmrMask::pd, MkeyLayout::pd);
  take(UmrMask::en_rinval, MkeyLayout::en_rinval);
  take(UmrMask::mkey, MkeyLayout::mkey);
  take(UmrMask::qpn, MkeyLayout::qpn);
  take(UmrMask::lr, MkeyLayout::lr);
  take(UmrMask::lw, MkeyLayout::lw);
  take(UmrMask::rr, MkeyLayout::rr);
  take(UmrMask::rw, MkeyLayout::rw);
  take(UmrMask::a, MkeyLayout::a);
  take(UmrMask::small_fence, MkeyLayout::small_fence_on_rdma_read_response);
  take(UmrMask::relaxed_ordering_write, MkeyLayout::relaxed_ordering_write);
  take(UmrMask::free, MkeyLayout::free);
  take(UmrMask::bsf_en, MkeyLayout::bsf_en);
  take(UmrMask::sigerr, MkeyLayout::expected_sigerr_count);
}

/// PRM 10.1.1.1, steps 2 to 5. `context`: the key's context before the UMR.
WqeFault check_target(const Umr& umr, const UmrUser& user, util::View<MkeyLayout> context) {
  if (!user.any_pd && rdma::Pd(context.get(MkeyLayout::pd)) != user.pd) {
    return WqeFault::kUmrOtherPd;
  }
  const bool free = context.get(MkeyLayout::free) != 0;
  const auto wanted = static_cast<umr_check_free>(umr.control().get(Umr::Control::check_free));
  if (wanted == umr_check_free::FAIL_UNLESS_FREE && !free) return WqeFault::kUmrNotFree;
  if (wanted == umr_check_free::FAIL_IF_FREE && free) return WqeFault::kUmrFree;
  if (umr.control().get(Umr::Control::check_qpn) != 0) {
    const auto only = attributes_of(context).only_qpn;
    if (only && *only != user.qpn) return WqeFault::kUmrOtherQp;
  }
  // Without this check, a process could reach all of the host's memory with a key of its own.
  if (!is_indirect(access_mode(context)) && !user.may_register && !user.any_pd) {
    return WqeFault::kUmrPhysical;
  }
  const bool signable = context.get(MkeyLayout::bsf_octword_size) != 0;
  if (!mask_allowed(umr, user, signable)) return WqeFault::kUmrMask;
  if (umr.bsf_octwords() != 0 && !signable) return WqeFault::kUmrNotSignable;
  // Drivers create keys with room for two pages, and load lists padded to kAlignment.
  const auto told = std::uint64_t{context.get(MkeyLayout::translations_octword_size)};
  const auto size = (told + kAlignment - 1) / kAlignment * kAlignment;
  if (umr.octwords() != 0 &&
      (umr.first_octword() > size || umr.octwords() > size - umr.first_octword())) {
    return WqeFault::kUmrListTooLong;
  }
  return WqeFault::kNone;
}

/// `context`: the key's context after the UMR.
WqeFault check_result(util::View<MkeyLayout> context, const Limits& limits) {
  const auto mode = access_mode(context);
  const auto log_page_size = context.get(MkeyLayout::log_page_size);
  if (mode == AccessMode::MTT &&
      (log_page_size < limits.log_pg_sz || log_page_size > kLogMaxPage)) {
    return WqeFault::kUmrPageSize;
  }
  if (mode == AccessMode::KSM && log_page_size > kLogMaxPiece) return WqeFault::kUmrPageSize;
  // With length64, only the existing pages or pieces bound the key.
  if (context.get(MkeyLayout::length64) != 0) return WqeFault::kNone;
  const auto start = context.get(MkeyLayout::start_addr);
  const auto length = context.get(MkeyLayout::len);
  const bool wraps = length != 0 && start + (length - 1) < start;
  return wraps ? WqeFault::kUmrRange : WqeFault::kNone;
}

/// Cost of MemoryKey::refresh() for a key with room for this number of pages.
std::int64_t refresh_work(std::uint64_t pages) {
  return static_cast<std::int64_t>(pages / rdma::PageTable::kChunk) * kChunkWork;
}

}  // namespace

LocalOutcome refused(WqeFault fault) { return {WorkStatus::kMemoryWindowBind, reason_of(fault)}; }

WqeFault Umr::check(std::span<const std::byte> body) {
  if (body.size() < kHeadersSize) return WqeFault::kUmrShort;
  const Umr umr(body);
  const auto control = umr.control();
  if (static_cast<umr_check_free>(control.get(Control::check_free)) == umr_check_free::RESERVED) {
    return WqeFault::kUmrCheckReserved;
  }
  if (umr.bsf_octwords() != 0 && (umr.bsf_octwords() * kOctword != Bsf::kSize || !umr.is_inline() ||
                                  body.size() - kHeadersSize < umr.list_size() + Bsf::kSize)) {
    return WqeFault::kUmrBsfSize;
  }
  if (umr.octwords() == 0) return WqeFault::kNone;
  if (umr.octwords() % kAlignment != 0 || umr.first_octword() % kAlignment != 0) {
    return WqeFault::kUmrListUnaligned;
  }
  const auto needed = umr.is_inline() ? umr.octwords() * kOctword : Pointer::kSize;
  if (body.size() - kHeadersSize < needed) return WqeFault::kUmrListMissing;
  if (!umr.is_inline() && umr.pointer().get(Pointer::address) % kPointerAlignment != 0) {
    return WqeFault::kUmrPointerUnaligned;
  }
  return WqeFault::kNone;
}

std::uint64_t Umr::first_octword() const {
  if (control().get(Control::translation_offset_en) == 0) return 0;
  return util::joined(std::uint64_t{control().get(Control::translation_offset_47_16)},
                      Control::translation_offset, control().get(Control::translation_offset));
}

std::size_t Umr::list_size() const { return octwords() * kOctword; }

std::span<const std::byte> Umr::translations() const {
  return body_.subspan(kHeadersSize, list_size());
}

LocalOutcome MemoryKeys::update(rdma::MKey umr_mkey, const Umr& umr, const UmrUser& user) {
  table_.add_work(kUmrWork);
  const auto index = kShape.index(umr_mkey);
  auto* record = records_.find(MKeyIndex(index));
  auto* key = table_.find_index(index);
  if (record == nullptr || key == nullptr) return refused(WqeFault::kUmrKeyUnknown);
  if (!record->takes_umr) return refused(WqeFault::kUmrNotEnabled);
  auto bytes = record->context;
  const util::MutableView<MkeyLayout> context(bytes);
  // The peer may have freed the key by a SEND with invalidate.
  context.set(MkeyLayout::free, key->is_free());
  if (const auto fault = check_target(umr, user, context); fault != WqeFault::kNone) {
    return refused(fault);
  }
  take_fields(umr, context);
  if (const auto fault = check_result(context, limits_); fault != WqeFault::kNone) {
    return refused(fault);
  }
  if (context.get(MkeyLayout::free) == 0 &&
      !resources_.pds().contains(Pd(context.get(MkeyLayout::pd)))) {
    return refused(WqeFault::kUmrUnknownPd);
  }
  rdma::SignatureRules rules;
  if (const auto fault = check_signature(umr, context, *key, rules); fault != WqeFault::kNone) {
    return refused(fault);
  }
  const bool is_long = takes_turns(umr, *record, access_mode(context));
  if (is_long && !may_go_on(*record, user)) return {.unfinished = true};
  LocalOutcome outcome;
  table_.change(*key, [&] {
    outcome = is_long ? load_some(umr, user, *record, *key, access_mode(context))
                      : load(umr, user, *record, *key, access_mode(context));
    if (outcome.status == WorkStatus::kSuccess && !outcome.unfinished) {
      if (umr.octwords() != 0) key->allow_reserved_pieces(user.reserved_lkey);
      if (key->signature() != nullptr) sign(umr, context, rules, *record, *key->signature());
      record->context = bytes;
      record->pd_use = use_pd(context);
      auto attributes = attributes_of(context);
      attributes.key = kShape.key(index, context.get(MkeyLayout::mkey));
      key->set_attributes(attributes);
    }
    key->refresh();
    table_.add_work(refresh_work(record->reserved));
  });
  // If another QP has begun an update, it must start again, since the list may have changed.
  if (!outcome.unfinished) record->long_update = nullptr;
  return outcome;
}

/// True if the UMR takes several turns: its list, or the list that it changes, is too long.
bool MemoryKeys::takes_turns(const Umr& umr, const Record& record, AccessMode mode) {
  if (umr.octwords() == 0) return false;
  // A list of keys is decoded up to the end of the UMR's part, which may lie far behind its old
  // end.
  const bool is_decoded = mode == AccessMode::KLM;
  const auto end = umr.octwords() + (is_decoded ? umr.first_octword() : 0);
  return std::max<std::uint64_t>(end, record.list.octwords()) > kShortList;
}

/// Loads the translations, and decodes the new list of a KLM key.
LocalOutcome MemoryKeys::load(const Umr& umr, const UmrUser& user, Record& record,
                              rdma::MemoryKey& key, AccessMode mode) {
  if (umr.octwords() == 0) return {};
  if (!reserve(record, umr, mode)) return refused(WqeFault::kUmrNoTranslations);
  if (!is_indirect(mode)) {
    return copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
      write_pages(record, key, octword, slice);
    });
  }
  if (mode == AccessMode::KSM) {
    if (add_pieces(key, umr)) return {.unfinished = true};
    return copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
      write_equal_pieces(record, key, octword, slice);
    });
  }
  LocalOutcome taken;
  const auto outcome =
      copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
        KeyListReader reader(octword, slice);
        (void)reader.read(record.list, std::numeric_limits<std::size_t>::max());
        table_.add_work(static_cast<std::int64_t>(record.list.octwords()) * kEntryWork);
        auto list = record.list;
        list.write(octword, slice);
        taken = take_keys(record, key, std::move(list), reader.take_meaning());
      });
  return outcome.status == WorkStatus::kSuccess ? taken : outcome;
}

/// Calls `take(octword, bytes)` with the whole of a short list, which is read only once.
template <class Take>
LocalOutcome MemoryKeys::copy_list(const Umr& umr, const UmrUser& user, Take&& take) {
  const auto size = umr.octwords() * kOctword;
  if (size == 0) return {};
  const auto octword = static_cast<std::size_t>(umr.first_octword());
  if (umr.is_inline()) {
    take(octword, umr.translations());
    return {};
  }
  const auto pointer = umr.pointer();
  const auto address = pointer.get(Umr::Pointer::address);
  const auto found =
      table_.check(rdma::MKey(pointer.get(Umr::Pointer::mkey)),
                   {.pd = user.pd, .qpn = user.qpn, .reserved_lkey = user.reserved_lkey}, address,
                   size, rdma::kLocalRead);
  if (!found) return {WorkStatus::kLocalProtection, found.reason};
  // Read the whole list before any of it is applied: a list that cannot be read changes nothing.
  std::array<std::byte, kShortList * kOctword> memory;
  const auto list = std::span(memory).first(size);
  if (!table_.read(*found.key, address, list)) {
    return {WorkStatus::kLocalProtection, rdma::Reason::kMemoryUnreachable};
  }
  take(octword, list);
  table_.add_work(static_cast<std::int64_t>(umr.octwords() * kPagesPerOctword) * kEntryWork);
  return {};
}

/// Replaces the whole list of a KLM key. A list that contradicts itself changes nothing.
LocalOutcome MemoryKeys::take_keys(Record& record, rdma::MemoryKey& key, KeyList list,
                                   KeyList::Meaning meaning) {
  if (!meaning.adds_up) return refused(WqeFault::kUmrStrided);
  record.list = std::move(list);
  record.first_translations = record.list.first();
  key.load_pieces(std::move(meaning.pieces), std::move(meaning.pattern));
  return {};
}

void MemoryKeys::write_pages(Record& record, rdma::MemoryKey& key, std::size_t octword,
                             std::span<const std::byte> entries) {
  const auto first = octword * kPagesPerOctword;
  for (std::size_t i = 0; i != entries.size() / Mtt::kSize; ++i) {
    key.load_page(first + i, page_of(util::View<Mtt>(entries.subspan(i * Mtt::kSize, Mtt::kSize))));
  }
  show(record, octword, entries);
}

void MemoryKeys::write_equal_pieces(Record& record, rdma::MemoryKey& key, std::size_t octword,
                                    std::span<const std::byte> entries) {
  using Ksm = spec::connectx::ksm_entry;
  for (std::size_t i = 0; i != entries.size() / kOctword; ++i) {
    const util::View<Ksm> entry(entries.subspan(i * kOctword, kOctword));
    key.set_piece(octword + i, entry.get(Ksm::address), rdma::MKey(entry.get(Ksm::mkey)));
  }
  show(record, octword, entries);
}

/// Adds some of the pieces between the end of the list and the UMR's first piece. They have no
/// memory until a UMR sets them. False if all of them exist.
bool MemoryKeys::add_pieces(rdma::MemoryKey& key, const Umr& umr) {
  const auto end = static_cast<std::size_t>(umr.first_octword());
  if (key.pieces() >= end) return false;
  const auto count = std::min(end - key.pieces(), kPiecesAtOnce);
  key.set_piece(key.pieces() + count - 1, 0, rdma::MKey{});
  table_.add_work(static_cast<std::int64_t>(count) * kEntryWork);
  return true;
}

/// Stores the translations that QUERY_MKEY reports.
void MemoryKeys::show(Record& record, std::size_t octword, std::span<const std::byte> entries) {
  const auto begin = octword * kOctword;
  if (begin >= record.first_translations.size()) return;
  const auto shown = std::span(record.first_translations).subspan(begin);
  std::copy_n(entries.begin(), std::min(shown.size(), entries.size()), shown.begin());
}

/// Extends the key's reservation in the function's budget to all translations up to the UMR's last
/// one. False if the budget does not suffice.
bool MemoryKeys::reserve(Record& record, const Umr& umr, AccessMode mode) {
  const auto octwords = umr.first_octword() + umr.octwords();
  const auto entries = is_indirect(mode) ? octwords : octwords * kPagesPerOctword;
  if (entries <= record.reserved) return true;
  auto& budget = resources_.translations();
  record.translations = {};
  auto reservation = budget.reserve(entries);
  const bool enough = reservation.has_value();
  if (enough) record.reserved = entries;
  record.translations = enough ? *std::move(reservation) : *budget.reserve(record.reserved);
  return enough;
}

}  // namespace softhca::connectx

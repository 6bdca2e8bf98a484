#include "connectx/memory/umr.h"

#include <algorithm>
#include <array>
#include <limits>

#include "connectx/memory/key_signatures.h"
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
/// Cost of a UMR without its list (util::WorkBudget).
constexpr std::int64_t kUmrWork = 300;
/// Cost of a chunk of pages whose rights MemoryKey::refresh() compares.
constexpr std::int64_t kChunkWork = 2;

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
  const auto octwords = std::uint64_t{context.get(MkeyLayout::translations_octword_size)};
  const auto size = (octwords + kAlignment - 1) / kAlignment * kAlignment;
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
  table_.work().charge(kUmrWork);
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
  if (const auto fault = check_signature(umr, context, *key, psvs_, rules);
      fault != WqeFault::kNone) {
    return refused(fault);
  }
  const bool is_long = record->takes_turns(umr, access_mode(context));
  if (is_long && !record->may_go_on(user)) return {.unfinished = true};
  LocalOutcome outcome;
  table_.change(*key, [&] {
    outcome = is_long ? load_some(umr, user, *record, *key, access_mode(context))
                      : load(umr, user, *record, *key, access_mode(context));
    if (outcome.status == WorkStatus::kSuccess && !outcome.unfinished) {
      if (umr.octwords() != 0) key->allow_reserved_pieces(user.reserved_lkey);
      if (key->signature() != nullptr) record->sign(umr, context, rules, *key->signature());
      record->context = bytes;
      record->pd_use = use_pd(context);
      auto attributes = attributes_of(context);
      attributes.key = kShape.key(index, context.get(MkeyLayout::mkey));
      key->set_attributes(attributes);
    }
    key->refresh();
    table_.work().charge(refresh_work(record->reserved));
  });
  // If another QP has begun an update, it must start again, since the list may have changed.
  if (!outcome.unfinished) record->long_update = nullptr;
  return outcome;
}

/// Loads the translations, and decodes the new list of a KLM key.
LocalOutcome MemoryKeys::load(const Umr& umr, const UmrUser& user, KeyRecord& record,
                              rdma::MemoryKey& key, AccessMode mode) {
  if (umr.octwords() == 0) return {};
  if (!record.reserve(umr, mode, resources_.translations()))
    return refused(WqeFault::kUmrNoTranslations);
  if (!is_indirect(mode)) {
    return copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
      record.write_pages(key, octword, slice);
    });
  }
  if (mode == AccessMode::KSM) {
    if (add_pieces(table_, key, umr)) return {.unfinished = true};
    return copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
      record.write_equal_pieces(key, octword, slice);
    });
  }
  LocalOutcome taken;
  const auto outcome =
      copy_list(umr, user, [&](std::size_t octword, std::span<const std::byte> slice) {
        KeyListReader reader(octword, slice);
        (void)reader.read(record.list, std::numeric_limits<std::size_t>::max());
        table_.work().charge(static_cast<std::int64_t>(record.list.octwords()) * kEntryWork);
        auto list = record.list;
        list.write(octword, slice);
        taken = record.take_keys(key, std::move(list), reader.take_meaning());
      });
  return outcome.status == WorkStatus::kSuccess ? taken : outcome;
}

/// Does the next step of a UMR that takes several turns.
LocalOutcome MemoryKeys::load_some(const Umr& umr, const UmrUser& user, KeyRecord& record,
                                   rdma::MemoryKey& key, AccessMode mode) {
  if (record.long_update == nullptr) {
    return record.begin_long(umr, user, mode, resources_.translations());
  }
  return record.long_update->go_on(umr, user, record, key, table_, mode);
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
  table_.work().charge(static_cast<std::int64_t>(umr.octwords() * kPagesPerOctword) * kEntryWork);
  return {};
}

}  // namespace softhca::connectx

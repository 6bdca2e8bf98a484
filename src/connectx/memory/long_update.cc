#include "connectx/memory/long_update.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "connectx/memory/memory_keys.h"
#include "connectx/memory/mkey_attributes.h"

namespace softhca::connectx {

namespace {

using rdma::LocalOutcome;
using rdma::WorkStatus;

/// Bytes of a list that are processed in one step, and the costs of reading and of applying an
/// octword (util::WorkBudget).
constexpr std::size_t kSlice = 32768;
constexpr std::int64_t kReadWork = 2;
constexpr std::int64_t kTakeWork = 2 * kEntryWork;
/// How often UMRs of other QPs wait for an unfinished UMR of the same key. Its QP may never
/// continue it: the QP may be in error, be destroyed, or wait for its peer.
constexpr unsigned kPatience = 16;

std::int64_t work_of(std::size_t bytes, std::int64_t octword_work) {
  return static_cast<std::int64_t>(bytes / kOctword) * octword_work;
}

}  // namespace

/// True if this user's UMR may continue. False if the UMR of another QP is changing the key.
bool MemoryKeys::may_go_on(Record& record, const UmrUser& user) {
  auto& update = record.long_update;
  if (update == nullptr) return true;
  if (update->user == user.qpn) {
    update->waited = 0;
    // If the QP does not continue a UMR, the update is from before a reset, or of an earlier QP.
    if (!user.again) update = nullptr;
    return true;
  }
  if (++update->waited <= kPatience) return false;
  update = nullptr;
  return true;
}

LocalOutcome MemoryKeys::begin_long(const Umr& umr, const UmrUser& user, Record& record,
                                    AccessMode mode) {
  if (!reserve(record, umr, mode)) return refused(WqeFault::kUmrNoTranslations);
  auto update = std::make_unique<LongUpdate>(user.qpn, umr.octwords() * kOctword);
  if (update->list == nullptr) return refused(WqeFault::kUmrNoTranslations);
  if (mode == AccessMode::KLM) {
    const auto end = static_cast<std::size_t>(umr.first_octword()) + umr.octwords();
    update->keys.reserve(std::max(record.list.octwords(), end));
  }
  if (umr.is_inline()) {
    std::ranges::copy(umr.translations(), update->list.get());
    update->read = update->size;
  }
  record.long_update = std::move(update);
  return {.unfinished = true};
}

/// Reads the next part of the list. The whole list is read before any of it is applied, so that a
/// list that cannot be read changes nothing.
LocalOutcome MemoryKeys::read_some(const Umr& umr, const UmrUser& user, LongUpdate& update) {
  const auto pointer = umr.pointer();
  const auto address = pointer.get(Umr::Pointer::address) + update.read;
  const auto size = std::min(kSlice, update.size - update.read);
  // A check of the whole list would not reach its last pages (MemoryKey::kLookMax).
  const auto found =
      table_.check(rdma::MKey(pointer.get(Umr::Pointer::mkey)),
                   {.pd = user.pd, .qpn = user.qpn, .reserved_lkey = user.reserved_lkey}, address,
                   size, rdma::kLocalRead);
  if (!found) return {WorkStatus::kLocalProtection, found.reason};
  table_.add_work(work_of(size, kReadWork));
  if (!table_.read(*found.key, address, {update.list.get() + update.read, size})) {
    return {WorkStatus::kLocalProtection, rdma::Reason::kMemoryUnreachable};
  }
  update.read += size;
  return {.unfinished = true};
}

LocalOutcome MemoryKeys::load_some(const Umr& umr, const UmrUser& user, Record& record,
                                   rdma::MemoryKey& key, AccessMode mode) {
  if (record.long_update == nullptr) return begin_long(umr, user, record, mode);
  auto& update = *record.long_update;
  if (update.read != update.size) return read_some(umr, user, update);
  const std::span list(update.list.get(), update.size);
  const auto first = static_cast<std::size_t>(umr.first_octword());
  if (mode == AccessMode::KLM) {
    constexpr auto kAtOnce = kSlice / kOctword;
    if (update.keys.append_from(record.list, first, list, kAtOnce)) {
      table_.add_work(work_of(kSlice, kReadWork));
      return {.unfinished = true};
    }
    table_.add_work(work_of(kSlice, kTakeWork));
    if (!update.reader.read(update.keys, kAtOnce)) return {.unfinished = true};
    return take_keys(record, key, std::move(update.keys), update.reader.take_meaning());
  }
  if (mode == AccessMode::KSM && add_pieces(key, umr)) return {.unfinished = true};
  const auto slice = list.subspan(update.written, std::min(kSlice, update.size - update.written));
  const auto octword = first + update.written / kOctword;
  mode == AccessMode::KSM ? write_equal_pieces(record, key, octword, slice)
                          : write_pages(record, key, octword, slice);
  update.written += slice.size();
  table_.add_work(work_of(slice.size(), kTakeWork));
  return {.unfinished = update.written != update.size};
}

}  // namespace softhca::connectx

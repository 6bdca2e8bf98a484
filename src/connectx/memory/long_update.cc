#include "connectx/memory/long_update.h"

#include <algorithm>
#include <utility>

#include "connectx/memory/key_record.h"
#include "connectx/memory/mkey_attributes.h"

namespace softhca::connectx {

using rdma::LocalOutcome;
using rdma::WorkStatus;

namespace {

using AccessMode = spec::connectx::mkey_access_mode;

/// Bytes of a list that are processed in one step, and the costs of reading and of applying an
/// octword (util::WorkBudget).
constexpr std::size_t kSlice = 32768;
constexpr std::int64_t kReadWork = 2;
constexpr std::int64_t kTakeWork = 2 * kEntryWork;

std::int64_t work_of(std::size_t bytes, std::int64_t octword_work) {
  return static_cast<std::int64_t>(bytes / kOctword) * octword_work;
}

}  // namespace

LocalOutcome LongUpdate::read_some(const Umr& umr, const UmrUser& user, rdma::KeyTable& table) {
  const auto pointer = umr.pointer();
  const auto address = pointer.get(Umr::Pointer::address) + read;
  const auto count = std::min(kSlice, size - read);
  // A check of the whole list would not reach its last pages (MemoryKey::kLookMax).
  const auto found =
      table.check(rdma::MKey(pointer.get(Umr::Pointer::mkey)),
                  {.pd = user.pd, .qpn = user.qpn, .reserved_lkey = user.reserved_lkey}, address,
                  count, rdma::kLocalRead);
  if (!found) return {WorkStatus::kLocalProtection, found.reason};
  table.work().charge(work_of(count, kReadWork));
  if (!table.read(*found.key, address, {list.get() + read, count})) {
    return {WorkStatus::kLocalProtection, rdma::Reason::kMemoryUnreachable};
  }
  read += count;
  return {.unfinished = true};
}

LocalOutcome LongUpdate::go_on(const Umr& umr, const UmrUser& user, KeyRecord& record,
                               rdma::MemoryKey& key, rdma::KeyTable& table, AccessMode mode) {
  if (read != size) return read_some(umr, user, table);
  const std::span all(list.get(), size);
  const auto first = static_cast<std::size_t>(umr.first_octword());
  if (mode == AccessMode::KLM) {
    constexpr auto kAtOnce = kSlice / kOctword;
    if (keys.append_from(record.list, first, all, kAtOnce)) {
      table.work().charge(work_of(kSlice, kReadWork));
      return {.unfinished = true};
    }
    table.work().charge(work_of(kSlice, kTakeWork));
    if (!reader.read(keys, kAtOnce)) return {.unfinished = true};
    return record.take_keys(key, std::move(keys), reader.take_meaning());
  }
  if (mode == AccessMode::KSM && add_pieces(table, key, umr)) return {.unfinished = true};
  const auto slice = all.subspan(written, std::min(kSlice, size - written));
  const auto octword = first + written / kOctword;
  mode == AccessMode::KSM ? record.write_equal_pieces(key, octword, slice)
                          : record.write_pages(key, octword, slice);
  written += slice.size();
  table.work().charge(work_of(slice.size(), kTakeWork));
  return {.unfinished = written != size};
}

}  // namespace softhca::connectx

#include "driver/jingzhao/memory_key.h"

#include <algorithm>
#include <vector>

#include "driver/jingzhao/hca.h"
#include "spec/jingzhao/context.h"
#include "util/log.h"

namespace softhca::driver::jingzhao {

using spec::command_opcode;
using spec::mpt_entry;
using spec::mtt_entry_group;
using spec::write_mtt_in;

namespace {

/// Entries per WRITE_MTT: the RTL takes 8 bits of their number.
constexpr std::uint64_t kMttsAtOnce = 252;
constexpr std::uint32_t kSwOwns = 0xF;

/// In a group of four, the first page is in the last field.
void set_page(util::MutableView<mtt_entry_group> group, std::size_t number, std::uint64_t page) {
  switch (number % 4) {
    case 0:
      return group.set(mtt_entry_group::page_0, page);
    case 1:
      return group.set(mtt_entry_group::page_1, page);
    case 2:
      return group.set(mtt_entry_group::page_2, page);
    default:
      return group.set(mtt_entry_group::page_3, page);
  }
}

}  // namespace

util::Result<std::unique_ptr<MemoryKey>> MemoryKey::register_memory(Hca& hca, std::uint32_t pd,
                                                                    std::span<std::byte> memory,
                                                                    MemoryAccess access) {
  std::unique_ptr<MemoryKey> key(new MemoryKey(hca));
  auto mapping = DmaMapping::map(hca.host(), memory);
  if (!mapping) return tl::unexpected(mapping.error());
  key->mapping_ = std::move(*mapping);
  const auto& pages = key->mapping_.pages();
  const Region region{.start = reinterpret_cast<std::uintptr_t>(memory.data()),
                      .length = memory.size(),
                      .first_page = pages.iova,
                      .pages = pages.bytes.size() / kPage};
  if (auto done = key->install(pd, region, access); !done) return tl::unexpected(done.error());
  return key;
}

util::Result<std::unique_ptr<MemoryKey>> MemoryKey::of_queue(Hca& hca, std::uint32_t pd,
                                                             const DmaBuffer& memory) {
  std::unique_ptr<MemoryKey> key(new MemoryKey(hca));
  const Region region{.start = memory.iova(),
                      .length = memory.bytes().size(),
                      .first_page = memory.iova(),
                      .pages = (memory.bytes().size() + kPage - 1) / kPage};
  if (auto done = key->install(pd, region, {}); !done) return tl::unexpected(done.error());
  return key;
}

util::Result<void> MemoryKey::write_pages(std::uint64_t first_page) {
  for (std::uint64_t first = 0; first < mtts_; first += kMttsAtOnce) {
    const auto count = std::min(mtts_ - first, kMttsAtOnce);
    std::vector<std::byte> mailbox(write_mtt_in::kSize + (count + 3) / 4 * mtt_entry_group::kSize);
    util::MutableView<write_mtt_in>(mailbox).set(write_mtt_in::mtt_start_index, first_mtt_ + first);
    for (std::uint64_t i = 0; i != count; ++i) {
      const auto at = write_mtt_in::kSize + i / 4 * mtt_entry_group::kSize;
      const util::MutableView<mtt_entry_group> group({mailbox.data() + at, mtt_entry_group::kSize});
      set_page(group, i, first_page + (first + i) * kPage);
    }
    if (auto done = hca_.run({.op = command_opcode::WRITE_MTT,
                              .in_modifier = static_cast<std::uint32_t>(count),
                              .in = mailbox});
        !done) {
      return done;
    }
  }
  return {};
}

util::Result<void> MemoryKey::install(std::uint32_t pd, const Region& region, MemoryAccess access) {
  const auto index = hca_.mpts().allocate();
  if (!index) return util::fail("all MPT entries are in use");
  index_ = *index;
  has_index_ = true;
  const auto mtt = hca_.mtts().allocate(region.pages);
  if (!mtt) return util::fail("the MTT has no room for the pages of the region");
  first_mtt_ = *mtt;
  mtts_ = region.pages;
  if (auto done = write_pages(region.first_page); !done) return done;
  // The bits above the index distinguish the key from earlier keys with the same index.
  const auto variants = 32 - hca_.options().log_mpts;
  const auto variant = hca_.next_key_variant() & ((std::uint32_t{1} << variants) - 1);
  key_ = variant << hca_.options().log_mpts |
         index_;  // no format: the key modulo the table's size is its index
  util::Struct<mpt_entry> entry;
  entry.set(mpt_entry::sw_owns, kSwOwns);
  entry.set(mpt_entry::mio, 1);
  entry.set(mpt_entry::region, 1);
  entry.set(mpt_entry::local_write, access.local_write);
  entry.set(mpt_entry::remote_read, access.remote_read);
  entry.set(mpt_entry::remote_write, access.remote_write);
  entry.set(mpt_entry::remote_atomic, access.remote_atomic);
  entry.set(mpt_entry::key, key_);
  entry.set(mpt_entry::pd, pd);
  entry.set(mpt_entry::start, region.start);
  entry.set(mpt_entry::length, region.length);
  entry.set(mpt_entry::mtt_seg, first_mtt_);
  auto done =
      hca_.run({.op = command_opcode::SW2HW_MPT, .in_modifier = index_, .in = entry.bytes()});
  exists_ = done.has_value();
  return done;
}

MemoryKey::~MemoryKey() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "memory key {:#x}: {}", key_, done.error().message);
  }
}

util::Result<void> MemoryKey::destroy() {
  util::Result<void> done;
  if (std::exchange(exists_, false)) {
    done = hca_.run({.op = command_opcode::HW2SW_MPT, .in_modifier = index_});
  }
  if (mtts_ != 0) hca_.mtts().free(first_mtt_, std::exchange(mtts_, 0));
  if (std::exchange(has_index_, false)) hca_.mpts().free(index_);
  mapping_ = DmaMapping();
  return done;
}

}  // namespace softhca::driver::jingzhao

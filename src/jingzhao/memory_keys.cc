#include "jingzhao/memory_keys.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <utility>

namespace softhca::jingzhao {

namespace {

using Mpt = MemoryKeys::Mpt;
using spec::jingzhao::mtt_entry;

/// Largest log2 of the page size: page sizes are 4 KiB to 2 GiB.
constexpr unsigned kLogPageMax = 31;
/// Work (util::WorkBudget) of comparing a cached region.
constexpr std::int64_t kCompareWork = 2;

std::uint8_t access_of(util::View<Mpt> entry) {
  std::uint8_t access = rdma::kLocalRead;
  if (entry.get(Mpt::local_write) != 0) access |= rdma::kLocalWrite;
  if (entry.get(Mpt::remote_read) != 0) access |= rdma::kRemoteRead;
  if (entry.get(Mpt::remote_write) != 0) access |= rdma::kRemoteWrite;
  if (entry.get(Mpt::remote_atomic) != 0) access |= rdma::kRemoteAtomic;
  return access;
}

/// A zero-based region ignores "start".
std::uint64_t start_of(util::View<Mpt> entry) {
  return entry.get(Mpt::zero_based) != 0 ? 0 : entry.get(Mpt::start);
}

/// The field holds bytes, or log2 of them minus 12; the ranges do not overlap (docs/jingzhao.md).
/// Nothing if it is neither.
std::optional<unsigned> log_page_size(util::View<Mpt> entry) {
  const auto size = entry.get(Mpt::page_size);
  if (size <= kLogPageMax - limits::kLogMinPage) return limits::kLogMinPage + size;
  if (!std::has_single_bit(size) || size < (1u << limits::kLogMinPage)) return std::nullopt;
  return static_cast<unsigned>(std::bit_width(size) - 1);
}

/// Software may have changed the entry since it was checked, so fall back to a valid value.
unsigned log_page_of(util::View<Mpt> entry) {
  return log_page_size(entry).value_or(limits::kLogMinPage);
}

/// MTT entries that the region needs. @pre the region does not wrap
std::uint64_t mtts_of(util::View<Mpt> entry) {
  if (entry.get(Mpt::physical) != 0) return 0;
  const auto page = std::uint64_t{1} << log_page_of(entry);
  const auto skip = start_of(entry) & (page - 1);
  const auto length = entry.get(Mpt::length);
  return (length >> log_page_of(entry)) +
         (((length & (page - 1)) + skip + page - 1) >> log_page_of(entry));
}

}  // namespace

MemoryKeys::MemoryKeys(const Parts& parts)
    : parts_(parts),
      keys_(parts.dma, rdma::KeyShape(0, parts.log_mpts)),
      mpts_({.icm = &parts.icm, .base = parts.mpt_base, .entry_size = limits::kMptSize},
            parts.cache, nullptr),
      mtts_before_(static_cast<std::uint32_t>(parts.mtt_base % kLine / limits::kMttSize)),
      mtts_({.icm = &parts.icm,
             .base = parts.mtt_base / kLine * kLine,
             .entry_size = static_cast<std::uint32_t>(kLine)},
            parts.cache, nullptr),
      installed_(std::size_t{1} << parts.log_mpts) {
  keys_.set_source(this);
}

CommandResult MemoryKeys::install(std::uint32_t index, util::View<Mpt> entry) {
  if (index >= installed_.size()) {
    return refuse(Status::BAD_PARAM, "3.2.3.1", "the index is beyond the MPT");
  }
  // "key AND (max MPT entries - 1)" is the index.
  if ((entry.get(Mpt::key) & (installed_.size() - 1)) != index) {
    return refuse(Status::BAD_PARAM, "3.2.3.1", "the key is not one of this index");
  }
  if (installed_[index]) return refuse(Status::BAD_PARAM, "3.2.3.1", "the entry is installed");
  if (!log_page_size(entry)) {
    return refuse(Status::BAD_PARAM, "3.2.3.1",
                  "the page size is no power of two from 4 KiB to 2 GiB, nor its log2 minus 12");
  }
  const auto start = start_of(entry), length = entry.get(Mpt::length);
  if (start + length < start) return refuse(Status::BAD_PARAM, "3.2.3.1", "the range wraps");
  const bool all_memory = parts_.all_memory_is_physical && length == UINT64_MAX;
  if (!all_memory && mtts_of(entry) > limits::kMaxPages) {
    return refuse(Status::BAD_PARAM, "3.2.3.1", "the region has more than 2^18 pages");
  }
  const auto made = mpts_.make(index);
  if (made.bytes == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "no ICM is mapped for the MPT entry");
  }
  std::ranges::copy(entry.bytes(), made.bytes);
  if (all_memory) util::MutableView<Mpt>({made.bytes, Mpt::kSize}).set(Mpt::physical, 1);
  installed_[index] = true;
  ++count_;
  return {};
}

CommandResult MemoryKeys::remove(std::uint32_t index) {
  if (index >= installed_.size() || !installed_[index]) {
    return refuse(Status::BAD_PARAM, "3.2.3.2", "no such MPT entry");
  }
  installed_[index] = false;
  --count_;
  evict_index(index);
  return {};
}

CommandResult MemoryKeys::write_mtt(std::uint64_t start, std::span<const std::uint64_t> pages) {
  const auto end = start + pages.size();
  constexpr std::uint64_t kEnd = limits::kMaxIcm / limits::kMttSize;
  if (start >= kEnd || end > kEnd) {
    return refuse(Status::BAD_PARAM, "3.2.3.3", "the entries are beyond the MTT");
  }
  if (!parts_.icm.mapped(parts_.mtt_base + start * limits::kMttSize,
                         pages.size() * limits::kMttSize)) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "no ICM is mapped for the MTT entries");
  }
  // Before the entries change: a write that fails halfway has changed some.
  evict_if([&](const CachedRegion& region) {
    return region.first_mtt < end && region.first_mtt + region.mtts > start;
  });
  for (auto i = start; i != end; ++i) {
    const auto number = mtts_before_ + i;
    const auto line = static_cast<std::uint32_t>(number / kMttsOfLine);
    const auto entry = mtts_.get(line);
    if (entry.bytes == nullptr) {
      return refuse(Status::BAD_PARAM, "3.2.2.1", "the ICM of the MTT entries cannot be reached");
    }
    auto* const at = entry.bytes + number % kMttsOfLine * limits::kMttSize;
    util::MutableView<mtt_entry>({at, mtt_entry::kSize}).set(mtt_entry::page, pages[i - start]);
    mtts_.mark_index_changed(line);
  }
  return {};
}

void MemoryKeys::drop(std::span<const Icm::Range> ranges) {
  mpts_.drop(ranges);
  mtts_.drop(ranges);
  evict_if([](const CachedRegion&) { return true; });
}

void MemoryKeys::forget(const CachedRegion& region) {
  parts_.unloaded.add(keys_.extract_index(region.index));
  cached_pages_ -= region.mtts;
  std::erase_if(partial_, [&](const Partial& one) { return one.region.index == region.index; });
}

void MemoryKeys::evict() {
  forget(cached_.front());
  cached_.pop_front();
}

template <class Which>
void MemoryKeys::evict_if(Which&& which) {
  keys_.work().charge(static_cast<std::int64_t>(cached_.size()) * kCompareWork);
  std::erase_if(cached_, [&](const CachedRegion& region) {
    if (!which(region)) return false;
    forget(region);
    return true;
  });
}

void MemoryKeys::evict_index(std::uint32_t index) {
  evict_if([&](const CachedRegion& region) { return region.index == index; });
}

/// Reads entries of a short list through the cache, and those of a long list directly from host
/// memory. @pre !pages.empty()
bool MemoryKeys::read_mtts(std::uint64_t first, std::span<std::uint64_t> pages, bool is_long) {
  const auto load = [](const std::byte* at) {
    return util::View<mtt_entry>({at, mtt_entry::kSize}).get(mtt_entry::page);
  };
  if (is_long) {
    const auto last = mtts_before_ + first + pages.size() - 1;
    mtts_.write_back(static_cast<std::uint32_t>((mtts_before_ + first) / kMttsOfLine),
                     static_cast<std::uint32_t>(last / kMttsOfLine) + 1);
    const auto bytes = std::as_writable_bytes(pages);
    if (!parts_.icm.read(parts_.mtt_base + first * limits::kMttSize, bytes)) return false;
    for (std::size_t i = 0; i != pages.size(); ++i) {
      pages[i] = load(bytes.data() + i * limits::kMttSize);
    }
    return true;
  }
  for (std::size_t i = 0; i != pages.size(); ++i) {
    const auto number = mtts_before_ + first + i;
    const auto entry = mtts_.get(static_cast<std::uint32_t>(number / kMttsOfLine));
    if (entry.bytes == nullptr) return false;
    pages[i] = load(entry.bytes + number % kMttsOfLine * limits::kMttSize);
  }
  return true;
}

void MemoryKeys::bring(std::uint32_t index) {
  if (index >= installed_.size() || !installed_[index]) return;
  keys_.work().charge(kBringWork);
  const auto found = mpts_.get(index);
  if (found.bytes == nullptr) {
    return parts_.notes.warn("MPT entry {:#x}: its ICM is not mapped, or gone (3.2.2.2)", index);
  }
  const util::View<Mpt> entry({found.bytes, Mpt::kSize});
  rdma::MemoryKey::Attributes attributes;
  attributes.key = rdma::MKey(entry.get(Mpt::key));
  attributes.pd = rdma::Pd(entry.get(Mpt::pd));
  attributes.access = access_of(entry);
  attributes.start = start_of(entry);
  attributes.length = entry.get(Mpt::length);
  attributes.log_page_size = log_page_of(entry);
  const CachedRegion region{
      .index = index, .first_mtt = entry.get(Mpt::mtt_seg), .mtts = mtts_of(entry)};
  // Software may have changed the host memory since.
  const bool good = keys_.shape().index(attributes.key) == index &&
                    attributes.start + attributes.length >= attributes.start &&
                    region.mtts <= limits::kMaxPages &&
                    region.first_mtt < limits::kMaxIcm / limits::kMttSize;
  if (!good) return parts_.notes.warn("MPT entry {:#x}: the ICM was changed by software", index);
  if (entry.get(Mpt::physical) == 0) attributes.form = rdma::KeyForm::kPages;
  auto key = std::make_unique<rdma::MemoryKey>(std::move(attributes));
  const auto now = std::min(region.mtts, kFirstPages);
  keys_.work().charge(static_cast<std::int64_t>(now) * kPageWork);
  if (!load(*key, region, 0, now)) return note_no_mtt(index);
  if (now != region.mtts) {
    key->set_rest(this);
    partial_.push_back({.region = region, .loaded = now});
    parts_.unloaded.ask_for_turn();
  }
  keys_.insert(std::move(key));
  cached_.push_back(region);
  cached_pages_ += region.mtts;
  unsettled_ = unsettled_ || is_crowded() || !partial_.empty();
}

/// Appends `count` pages from the `first` page of the region on. False if their MTT entries cannot
/// be read.
bool MemoryKeys::load(rdma::MemoryKey& key, const CachedRegion& region, std::uint64_t first,
                      std::uint64_t count) {
  const auto in_page = (std::uint64_t{1} << key.attributes().log_page_size) - 1;
  const bool is_long = region.mtts > std::uint64_t{kMttsOfLine} * mtts_.capacity() / 4;
  std::array<std::uint64_t, kStep> room;
  for (const auto end = first + count; first != end;) {
    const auto pages = std::span(room).first(std::min<std::uint64_t>(end - first, kStep));
    if (!read_mtts(region.first_mtt + first, pages, is_long)) return false;
    for (const auto page : pages) key.append_page(page & ~in_page);
    first += pages.size();
  }
  return true;
}

std::optional<pcie::Iova> MemoryKeys::bring_page(rdma::MKey key, std::uint64_t number) {
  const auto index = keys_.shape().index(key);
  const auto found =
      std::ranges::find_if(partial_, [&](const Partial& one) { return one.region.index == index; });
  if (found == partial_.end() || number >= found->region.mtts) return std::nullopt;
  keys_.work().charge(kEarlyPageWork);
  std::uint64_t page = 0;
  if (!read_mtts(found->region.first_mtt + number, {&page, 1}, false)) {
    note_no_mtt(index);
    return std::nullopt;
  }
  return page & ~((std::uint64_t{1} << keys_.find_index(index)->attributes().log_page_size) - 1);
}

void MemoryKeys::load_rest(util::WorkBudget& work) {
  while (!partial_.empty()) {
    if (work.spent()) return parts_.unloaded.ask_for_turn();
    auto& [region, loaded] = partial_.back();
    const auto index = region.index;
    const auto pages = std::min<std::uint64_t>(region.mtts - loaded, kStep);
    work.charge(static_cast<std::int64_t>(pages) * kPageWork);
    auto& key = *keys_.find_index(index);
    if (!load(key, region, loaded, pages)) {
      note_no_mtt(index);
      evict_index(index);
      continue;
    }
    loaded += pages;
    if (loaded != region.mtts) continue;
    key.set_rest(nullptr);
    partial_.pop_back();
  }
}

void MemoryKeys::note_no_mtt(std::uint32_t index) {
  parts_.notes.warn("MPT entry {:#x}: the ICM of its MTT is not mapped, or gone (3.2.2.2)", index);
}

}  // namespace softhca::jingzhao

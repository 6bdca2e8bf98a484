#include "rdma/page_table.h"

#include <algorithm>
#include <cassert>

#include "rdma/memory_key.h"

namespace softhca::rdma {
namespace {

bool grants_all(std::uint64_t entry) {
  return (entry & (PageTable::kAlignment - 1)) == kEveryAccess;
}

}  // namespace

void PageTable::set(std::size_t number, Page page) {
  static_assert(kEveryAccess < kAlignment);
  assert(page.address % kAlignment == 0);
  const auto index = number / kChunk;
  if (index >= chunks_.size()) chunks_.resize(index + 1);
  auto& chunk = chunks_[index];
  const auto place = number % kChunk;
  if (place >= chunk.entries.size()) {
    chunk.limited += place + 1 - chunk.entries.size();
    chunk.entries.resize(place + 1);
  }
  auto& entry = chunk.entries[place];
  chunk.limited -= !grants_all(entry);
  entry = page.address | page.access;
  chunk.limited += !grants_all(entry);
}

std::size_t PageTable::run(std::size_t number, unsigned log_size, std::size_t max) const {
  auto expected = raw(number);
  std::size_t count = 1;
  for (; count < max; ++count) {
    expected += std::uint64_t{1} << log_size;
    if (raw(number + count) != expected) break;
  }
  return count;
}

bool PageTable::all_grant_all(std::size_t count) const {
  for (std::size_t i = 0; count != 0; ++i) {
    const auto wanted = std::min(count, kChunk);
    if (i >= chunks_.size() || chunks_[i].entries.size() < wanted) return false;
    const auto& [entries, limited] = chunks_[i];
    if (limited != 0 &&
        !std::all_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(wanted),
                     grants_all)) {
      return false;
    }
    count -= wanted;
  }
  return true;
}

bool PageTable::shrink(util::WorkBudget& work) {
  constexpr std::int64_t kChunkWork = 300;
  while (chunks_.size() > 1) {
    if (work.spent()) return false;
    chunks_.pop_back();
    work.charge(kChunkWork);
  }
  return true;
}

}  // namespace softhca::rdma

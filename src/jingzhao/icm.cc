#include "jingzhao/icm.h"

#include <algorithm>

namespace softhca::jingzhao {

Icm::Chunks::const_iterator Icm::find(std::uint64_t virt) const {
  auto next = chunks_.upper_bound(virt);
  if (next == chunks_.begin()) return chunks_.end();
  --next;
  return virt - next->first < next->second.size ? next : chunks_.end();
}

/// Unmaps [virt, end); parts of chunks beyond it stay mapped.
void Icm::cut(std::uint64_t virt, std::uint64_t end) {
  auto at = chunks_.lower_bound(virt);
  if (at != chunks_.begin()) {
    const auto before = std::prev(at);
    const auto [start, chunk] = *before;
    if (virt - start < chunk.size) {
      before->second.size = virt - start;
      if (start + chunk.size > end) {
        chunks_.emplace(end, Chunk{start + chunk.size - end, chunk.bus + (end - start)});
      }
    }
  }
  while (at != chunks_.end() && at->first < end) {
    const auto [start, chunk] = *at;
    at = chunks_.erase(at);
    if (start + chunk.size > end) {
      chunks_.emplace(end, Chunk{start + chunk.size - end, chunk.bus + (end - start)});
    }
  }
}

void Icm::map(std::uint64_t virt, pcie::Iova bus, std::uint64_t pages) {
  const auto size = pages << kLogPage;
  cut(virt, virt + size);
  chunks_.emplace(virt, Chunk{size, bus});
}

void Icm::unmap(std::uint64_t virt, std::uint64_t pages) {
  if (pages != 0) cut(virt, virt + (pages << kLogPage));
}

std::vector<Icm::Range> Icm::merge(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> merged;
  for (const auto& range : ranges) {
    if (merged.empty() || merged.back().end < range.begin) {
      merged.push_back(range);
    } else {
      merged.back().end = std::max(merged.back().end, range.end);
    }
  }
  return merged;
}

std::size_t Icm::chunks_after(std::span<const Range> ranges) const {
  // Only chunks that lie partly in the ranges are tried. Those wholly in them go.
  Icm trial(dma_);
  std::size_t touched = 0;
  for (const auto& [begin, end] : merge({ranges.begin(), ranges.end()})) {
    auto at = find(begin);
    if (at == chunks_.end()) at = chunks_.lower_bound(begin);
    for (; at != chunks_.end() && at->first < end; ++at) {
      const bool goes = begin <= at->first && at->first + at->second.size <= end;
      if (goes || trial.chunks_.insert(*at).second) ++touched;
    }
  }
  for (const auto& [begin, end] : ranges) trial.map(begin, 0, (end - begin) >> kLogPage);
  return chunks_.size() - touched + trial.chunks_.size();
}

bool Icm::splits(std::uint64_t virt, std::uint64_t pages) const {
  const auto found = find(virt);
  return found != chunks_.end() && found->first < virt && pages != 0 &&
         virt - found->first + (pages << kLogPage) < found->second.size;
}

bool Icm::overlaps(std::uint64_t virt, std::uint64_t pages) const {
  if (find(virt) != chunks_.end()) return true;
  const auto next = chunks_.lower_bound(virt);
  return next != chunks_.end() && next->first - virt < pages << kLogPage;
}

template <class Piece>
bool Icm::for_each_piece(std::uint64_t virt, std::uint64_t size, Piece&& piece) const {
  for (std::uint64_t done = 0; done < size;) {
    const auto found = find(virt + done);
    if (found == chunks_.end()) return false;
    const auto skip = virt + done - found->first;
    const auto n = std::min(size - done, found->second.size - skip);
    if (!piece(found->second.bus + skip, done, n)) return false;
    done += n;
  }
  return true;
}

bool Icm::mapped(std::uint64_t virt, std::uint64_t size) const {
  return for_each_piece(virt, size, [](pcie::Iova, std::uint64_t, std::uint64_t) { return true; });
}

bool Icm::read(std::uint64_t virt, std::span<std::byte> out) const {
  return for_each_piece(virt, out.size(), [&](pcie::Iova bus, std::uint64_t done, std::uint64_t n) {
    return dma_.read(bus, out.subspan(done, n));
  });
}

bool Icm::write(std::uint64_t virt, std::span<const std::byte> in) {
  return for_each_piece(virt, in.size(), [&](pcie::Iova bus, std::uint64_t done, std::uint64_t n) {
    return dma_.write(bus, in.subspan(done, n));
  });
}

std::uint64_t Icm::pages() const {
  std::uint64_t bytes = 0;
  for (const auto& [virt, chunk] : chunks_) bytes += chunk.size;
  return bytes >> kLogPage;
}

}  // namespace softhca::jingzhao

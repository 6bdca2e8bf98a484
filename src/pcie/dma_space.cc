#include "pcie/dma_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace softhca::pcie {
namespace {

bool allows(DmaAccess granted, DmaAccess wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(granted) & bits) == bits;
}

/// The last byte of a range that does not wrap around.
Iova last_byte(Iova iova, std::uint64_t size) { return iova + (size - 1); }

bool wraps(Iova iova, std::uint64_t size) { return size != 0 && last_byte(iova, size) < iova; }

/// The places where this thread last found addresses: indexes in mappings(), by 2 MiB of address.
/// They are only hints, so spaces and addresses may share an entry.
thread_local std::array<std::uint32_t, 16> hints{};

std::uint32_t& hint(const void* space, Iova iova) {
  // no format: a hash
  return hints[(iova >> 21 ^ reinterpret_cast<std::uintptr_t>(space) >> 6) % hints.size()];
}

thread_local bool local_memory_only = false;

/// False if this thread must not access memory behind a peer.
bool may_ask() {
  if (local_memory_only) LocalMemoryOnly::note_refusal();
  return !local_memory_only;
}

bool read_remote(RemoteMemory& memory, Iova from, std::span<std::byte> out) {
  if (!may_ask()) return false;
  RemoteAccesses::add();
  return memory.dma_read(from, out);
}

bool write_remote(RemoteMemory& memory, Iova to, std::span<const std::byte> in) {
  if (!may_ask()) return false;
  RemoteAccesses::add();
  return memory.dma_write(to, in);
}

}  // namespace

LocalMemoryOnly::LocalMemoryOnly() {
  assert(!local_memory_only);
  local_memory_only = true;
}

LocalMemoryOnly::~LocalMemoryOnly() { local_memory_only = false; }

bool LocalMemoryOnly::active() { return local_memory_only; }

bool DmaSpace::overlaps(Iova iova, std::uint64_t size) const {
  if (size == 0 || wraps(iova, size)) return false;
  const auto after = std::upper_bound(mappings_.begin(), mappings_.end(), last_byte(iova, size),
                                      [](Iova at, const Mapping& m) { return at < m.iova; });
  if (after == mappings_.begin()) return false;
  const auto& before = *(after - 1);
  return last_byte(before.iova, before.size) >= iova;
}

util::Result<void> DmaSpace::insert(const Mapping& mapping) {
  if (mapping.size == 0)
    return util::fail(fmt::format("DMA map of 0 bytes at {:#x}", mapping.iova));
  if (wraps(mapping.iova, mapping.size)) {
    return util::fail(
        fmt::format("DMA map of {:#x} bytes at {:#x} passes the end of the address space",
                    mapping.size, mapping.iova));
  }
  if (overlaps(mapping.iova, mapping.size)) {
    return util::fail(fmt::format("DMA map of {:#x} bytes at {:#x} overlaps another mapping",
                                  mapping.size, mapping.iova));
  }
  const auto at = std::upper_bound(mappings_.begin(), mappings_.end(), mapping.iova,
                                   [](Iova iova, const Mapping& m) { return iova < m.iova; });
  const Paused paused(threads_);
  mappings_.insert(at, mapping);
  update_reachable();
  return {};
}

util::Result<void> DmaSpace::map(Iova iova, std::uint64_t size, std::byte* host, DmaAccess access) {
  if (host == nullptr) return util::fail("DMA map without memory");
  return insert({.iova = iova, .size = size, .host = host, .remote = nullptr, .access = access});
}

util::Result<void> DmaSpace::map_remote(Iova iova, std::uint64_t size, RemoteMemory& memory,
                                        DmaAccess access) {
  return insert({.iova = iova, .size = size, .host = nullptr, .remote = &memory, .access = access});
}

util::Result<void> DmaSpace::unmap(Iova iova, std::uint64_t size) {
  const auto at = std::lower_bound(mappings_.begin(), mappings_.end(), iova,
                                   [](const Mapping& m, Iova wanted) { return m.iova < wanted; });
  if (at == mappings_.end() || at->iova != iova || at->size != size) {
    return util::fail(
        fmt::format("DMA unmap of {:#x} bytes at {:#x}: no such mapping", size, iova));
  }
  lose();
  const Paused paused(threads_);
  mappings_.erase(at);
  update_reachable();
  ++generation_;
  return {};
}

std::span<const DmaSpace::Mapping> DmaSpace::mappings_from(Iova first) const {
  const auto at = std::lower_bound(
      mappings_.begin(), mappings_.end(), first,
      [](const Mapping& m, Iova wanted) { return last_byte(m.iova, m.size) < wanted; });
  return std::span(mappings_).subspan(static_cast<std::size_t>(at - mappings_.begin()));
}

std::vector<DmaSpace::Mapping> DmaSpace::take(std::span<const Mapping> part) {
  if (part.size() == mappings_.size()) return unmap_all();
  std::vector<Mapping> taken(part.begin(), part.end());
  lose();
  const Paused paused(threads_);
  const auto at = mappings_.begin() + (part.data() - mappings_.data());
  mappings_.erase(at, at + static_cast<std::ptrdiff_t>(taken.size()));
  update_reachable();
  ++generation_;
  return taken;
}

std::vector<DmaSpace::Mapping> DmaSpace::unmap_all() {
  if (mappings_.empty()) return {};
  lose();
  const Paused paused(threads_);
  auto taken = std::exchange(mappings_, {});
  update_reachable();
  ++generation_;
  return taken;
}

void DmaSpace::set_bus_master(bool enabled) {
  if (enabled == bus_master_) return;
  if (!enabled) lose();
  const Paused paused(threads_);
  bus_master_ = enabled;
  update_reachable();
  ++generation_;
}

void DmaSpace::update_reachable() {
  if (tap_ != nullptr) {
    tapped_ = mappings_;
    for (auto& mapping : tapped_) mapping.host = nullptr;
  }
  const auto& seen = tap_ != nullptr ? tapped_ : mappings_;
  reachable_ = bus_master_ ? std::span<const Mapping>(seen) : std::span<const Mapping>{};
}

void DmaSpace::set_tap(DmaTap* tap) {
  lose();
  const Paused paused(threads_);
  tap_ = tap;
  update_reachable();
  ++generation_;
}

/// Reads memory without a host address: behind a peer, or tapped.
bool DmaSpace::read_slow(const Mapping& mapping, Iova from, std::span<std::byte> out) const {
  if (tap_ == nullptr) return read_remote(*mapping.remote, from, out);
  if (!may_ask()) return false;
  const auto& real = mappings_[static_cast<std::size_t>(&mapping - tapped_.data())];
  if (real.host == nullptr && !read_remote(*real.remote, from, out)) return false;
  if (real.host != nullptr) std::memcpy(out.data(), real.host + (from - real.iova), out.size());
  tap_->handle_dma(from, out.size(), DmaAccess::kRead);
  return true;
}

bool DmaSpace::write_slow(const Mapping& mapping, Iova to, std::span<const std::byte> in) const {
  if (tap_ == nullptr) return write_remote(*mapping.remote, to, in);
  if (!may_ask()) return false;
  const auto& real = mappings_[static_cast<std::size_t>(&mapping - tapped_.data())];
  if (real.host == nullptr && !write_remote(*real.remote, to, in)) return false;
  if (real.host != nullptr) std::memcpy(real.host + (to - real.iova), in.data(), in.size());
  tap_->handle_dma(to, in.size(), DmaAccess::kWrite);
  return true;
}

const DmaSpace::Mapping* DmaSpace::search(Iova iova) const {
  const auto after = std::upper_bound(reachable_.begin(), reachable_.end(), iova,
                                      [](Iova at, const Mapping& m) { return at < m.iova; });
  if (after == reachable_.begin()) return nullptr;
  const auto& candidate = *(after - 1);
  if (iova - candidate.iova >= candidate.size) return nullptr;
  hint(this, iova) = static_cast<std::uint32_t>(&candidate - reachable_.data());
  return &candidate;
}

inline const DmaSpace::Mapping* DmaSpace::find(Iova iova) const {
  // A device uses few mappings: guest memory has two or three large ones.
  const auto last = hint(this, iova);
  if (last < reachable_.size()) {
    const auto& hit = reachable_[last];
    if (iova - hit.iova < hit.size) return &hit;  // wraps to a large number if iova is below
  }
  return search(iova);
}

std::byte* DmaSpace::translate(Iova iova, std::uint64_t size, DmaAccess access) const {
  if (size == 0) return nullptr;
  const auto* mapping = find(iova);
  if (mapping == nullptr || mapping->host == nullptr || !allows(mapping->access, access))
    return nullptr;
  const auto offset = iova - mapping->iova;
  return size <= mapping->size - offset ? mapping->host + offset : nullptr;
}

std::span<std::byte> DmaSpace::translate_prefix(Iova iova, std::uint64_t size,
                                                DmaAccess access) const {
  const auto* mapping = find(iova);
  if (mapping == nullptr || mapping->host == nullptr || !allows(mapping->access, access)) return {};
  const auto offset = iova - mapping->iova;
  return {mapping->host + offset, static_cast<std::size_t>(std::min(size, mapping->size - offset))};
}

DmaSpace::Window DmaSpace::window(Iova iova, DmaAccess access) const {
  const auto* mapping = find(iova);
  if (mapping == nullptr || mapping->host == nullptr || !allows(mapping->access, access)) return {};
  return {mapping->iova, mapping->size, mapping->host};
}

bool DmaSpace::read(Iova from, std::span<std::byte> out) const {
  while (!out.empty()) {
    const auto* mapping = find(from);
    if (mapping == nullptr || !allows(mapping->access, DmaAccess::kRead)) return false;
    const auto offset = from - mapping->iova;
    const auto length =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), mapping->size - offset));
    if (mapping->host != nullptr) {
      std::memcpy(out.data(), mapping->host + offset, length);
    } else if (!read_slow(*mapping, from, out.first(length))) {
      return false;
    }
    out = out.subspan(length);
    // There is nothing beyond the last address: do not continue at address 0.
    if (!out.empty() && from + length < from) return false;
    from += length;
  }
  return true;
}

bool DmaSpace::write(Iova to, std::span<const std::byte> in) const {
  while (!in.empty()) {
    const auto* mapping = find(to);
    if (mapping == nullptr || !allows(mapping->access, DmaAccess::kWrite)) return false;
    const auto offset = to - mapping->iova;
    const auto length =
        static_cast<std::size_t>(std::min<std::uint64_t>(in.size(), mapping->size - offset));
    if (mapping->host != nullptr) {
      std::memcpy(mapping->host + offset, in.data(), length);
    } else if (!write_slow(*mapping, to, in.first(length))) {
      return false;
    }
    in = in.subspan(length);
    if (!in.empty() && to + length < to) return false;
    to += length;
  }
  return true;
}

}  // namespace softhca::pcie

#include "driver/in_process_host.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "driver/pci.h"

namespace softhca::driver {
namespace {

constexpr std::size_t kArenaSize = std::size_t{2} << 20;
/// Bus addresses begin here and are never used twice, so that a stale one finds nothing. They are
/// no addresses of the process: who mixes the two up notices.
constexpr pcie::Iova kFirstIova = pcie::Iova{1} << 40;

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

void InProcessHost::Unmapper::operator()(std::byte* memory) const { ::munmap(memory, size); }

InProcessHost::InProcessHost(pcie::Function& function, Options options)
    : function_(function), options_(std::move(options)), next_iova_(kFirstIova) {
  set_sink(this);
}

InProcessHost::~InProcessHost() {
  function_.reset();
  set_sink(nullptr);
  function_.dma().unmap_all();
}

void InProcessHost::set_sink(pcie::InterruptSink* sink) {
  function_.msix().set_sink(sink);
  if (auto* msi = function_.interrupts().msi()) msi->set_sink(sink, pcie::Masking::kRegisters);
}

void InProcessHost::read_config(std::uint32_t offset, std::span<std::byte> out) {
  function_.read_config(offset, out);
}

void InProcessHost::write_config(std::uint32_t offset, std::span<const std::byte> in) {
  function_.write_config(offset, in);
}

void InProcessHost::read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  function_.read_bar(bar, offset, out);
}

void InProcessHost::write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  function_.write_bar(bar, offset, in);
}

util::Result<DmaRegion> InProcessHost::allocate(std::size_t size) {
  // Sizes in powers of two: what one queue gave back serves the next.
  const auto rounded = std::max(std::bit_ceil(size), kPageSize);
  auto region = carve(rounded);
  if (!region) return region;
  allocated_ += rounded;
  std::memset(region->bytes.data(), 0, rounded);
  return region;
}

util::Result<DmaRegion> InProcessHost::carve(std::size_t size) {
  auto& freed = free_[size];
  if (!freed.empty()) {
    const auto region = freed.back();
    freed.pop_back();
    return region;
  }
  if (rest_.bytes.size() < size) {
    if (const auto added = add_arena(size); !added) return tl::unexpected(added.error());
  }
  const DmaRegion region{rest_.bytes.first(size), rest_.iova};
  rest_ = {rest_.bytes.subspan(size), rest_.iova + size};
  return region;
}

util::Result<void> InProcessHost::add_arena(std::size_t size) {
  const auto arena_size = round_up(size, kArenaSize);
  void* memory =
      ::mmap(nullptr, arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return util::fail_errno(fmt::format("{} bytes of DMA memory", arena_size));
  Arena arena(static_cast<std::byte*>(memory), Unmapper{arena_size});
  const auto mapped =
      function_.dma().map(next_iova_, arena_size, arena.get(), pcie::DmaAccess::kReadWrite);
  if (!mapped) return mapped;
  rest_ = {{arena.get(), arena_size}, next_iova_};
  next_iova_ += arena_size;
  arenas_.push_back(std::move(arena));
  return {};
}

void InProcessHost::free(const DmaRegion& region) {
  assert(allocated_ >= region.bytes.size());
  allocated_ -= region.bytes.size();
  free_[region.bytes.size()].push_back(region);
}

util::Result<DmaRegion> InProcessHost::map(std::span<std::byte> bytes) {
  if (bytes.empty()) return util::fail("DMA mapping of 0 bytes");
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto skip = address % kPageSize;
  const auto size = round_up(skip + bytes.size(), kPageSize);
  // At the same place in a large page as in the process, so that a memory key may use large pages.
  const auto iova = next_iova_ + (address - skip) % kArenaSize;
  const DmaRegion region{{bytes.data() - skip, size}, iova};
  const auto mapped =
      function_.dma().map(region.iova, size, region.bytes.data(), pcie::DmaAccess::kReadWrite);
  if (!mapped) return tl::unexpected(mapped.error());
  // An unmapped page behind each mapping: who runs over its end finds nothing.
  next_iova_ = round_up(iova + size + kPageSize, kArenaSize);
  ++mapped_;
  return region;
}

void InProcessHost::unmap(const DmaRegion& region) {
  const auto unmapped = function_.dma().unmap(region.iova, region.bytes.size());
  assert(unmapped && "a mapping of map()");
  (void)unmapped;
  --mapped_;
}

util::Result<void> InProcessHost::enable_interrupts(unsigned count) {
  interrupts_.assign(count, 0);
  return options_.msi ? enable_msi(*this, count) : enable_msix(*this, count);
}

void InProcessHost::disable_interrupts() {
  disable_msix(*this);
  disable_msi(*this);
}

std::uint64_t InProcessHost::interrupts(unsigned vector) const {
  return vector < interrupts_.size() ? interrupts_[vector] : 0;
}

void InProcessHost::raise(std::uint16_t vector) {
  if (vector >= interrupts_.size()) return;
  ++interrupts_[vector];
  if (options_.on_interrupt) options_.on_interrupt(vector);
}

void InProcessHost::progress() {
  if (in_progress_ || !options_.progress) return;
  in_progress_ = true;
  options_.progress();
  in_progress_ = false;
}

}  // namespace softhca::driver

#include "driver/in_process_host.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cassert>

#include "driver/pci.h"

namespace softhca::driver {

void InProcessHost::Unmapper::operator()(std::byte* memory) const { ::munmap(memory, size); }

InProcessHost::InProcessHost(pcie::Function& function, Options options)
    : function_(function),
      options_(std::move(options)),
      next_iova_(kFirstIova),
      pool_([this](std::size_t size) { return add_arena(size); }) {
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

util::Result<DmaRegion> InProcessHost::add_arena(std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return util::fail_errno(fmt::format("{} bytes of DMA memory", size));
  Arena arena(static_cast<std::byte*>(memory), Unmapper{size});
  const auto mapped =
      function_.dma().map(next_iova_, size, arena.get(), pcie::DmaAccess::kReadWrite);
  if (!mapped) return tl::unexpected(mapped.error());
  const DmaRegion region{{arena.get(), size}, next_iova_};
  next_iova_ += size;
  arenas_.push_back(std::move(arena));
  return region;
}

util::Result<DmaRegion> InProcessHost::map(std::span<std::byte> bytes) {
  if (bytes.empty()) return util::fail("DMA mapping of 0 bytes");
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto skip = address % kPageSize;
  const auto size = round_up(skip + bytes.size(), kPageSize);
  // At the same offset in a large page as in the process, so that a memory key may use large pages.
  const auto iova = next_iova_ + (address - skip) % DmaPool::kArenaSize;
  const DmaRegion region{{bytes.data() - skip, size}, iova};
  const auto mapped =
      function_.dma().map(region.iova, size, region.bytes.data(), pcie::DmaAccess::kReadWrite);
  if (!mapped) return tl::unexpected(mapped.error());
  // An unmapped page follows each mapping, so that an access beyond its end fails.
  next_iova_ = round_up(iova + size + kPageSize, DmaPool::kArenaSize);
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
  {
    const pcie::Paused paused(function_.msix().threads());
    interrupts_ = std::vector<std::atomic<std::uint64_t>>(count);
  }
  return options_.msi ? enable_msi(*this, count) : enable_msix(*this, count);
}

void InProcessHost::disable_interrupts() {
  disable_msix(*this);
  disable_msi(*this);
}

std::uint64_t InProcessHost::interrupts(unsigned vector) const {
  return vector < interrupts_.size() ? interrupts_[vector].load() : 0;
}

void InProcessHost::raise(std::uint16_t vector) {
  if (vector >= interrupts_.size()) return;
  ++interrupts_[vector];
  if (options_.on_interrupt) options_.on_interrupt(vector);
}

void InProcessHost::progress() {
  if (in_progress_ || !options_.progress) return;
  // Resets the flag also on an exception, such as std::bad_alloc.
  struct Guard {
    bool& on;
    ~Guard() { on = false; }
  };
  const Guard guard{in_progress_};
  in_progress_ = true;
  options_.progress();
}

}  // namespace softhca::driver

// A minimal PCIe function, so that a test sees what the server does.
//
// BAR0 (16 KiB, 64 bits): the first page is plain memory. A 32-bit write at kDoorbell is recorded.
// When the function runs, it raises the vector of that number. A 64-bit write at kDmaFrom makes the
// next run() copy 8 bytes from that bus address to kDmaResult in BAR0. A write at kDmaTo makes it
// write the value kDmaPattern to the given address. The third page holds MSI-X table and PBA. BAR2
// (8 KiB): its second page can be offered as shared memory.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "pcie/function.h"
#include "util/endian.h"

namespace softhca::test {

/// Counts how often threads of a device would stop.
class CountedThreads final : public pcie::DeviceThreads {
 public:
  bool run() const { return runs_; }

 private:
  bool stop() override {
    runs_ = false;
    return true;
  }
  void go_on() override { runs_ = true; }

  bool runs_ = true;
};

class TestFunction final : public pcie::Function {
 public:
  static constexpr std::uint64_t kDoorbell = 0x800;
  static constexpr std::uint64_t kDmaFrom = 0x808;
  static constexpr std::uint64_t kDmaTo = 0x810;
  static constexpr std::uint64_t kDmaResult = 0x818;
  static constexpr std::uint64_t kDmaOk = 0x820;
  static constexpr std::uint64_t kDmaPattern = 0x1122334455667788;
  static constexpr std::uint16_t kVectors = 40;
  static constexpr std::uint16_t kMsiVectors = 8;
  static constexpr std::uint32_t kPbaOffset = 0x3000;

  explicit TestFunction(std::string name = "test0")
      : Function(
            std::move(name),
            {.vendor_id = 0x1af4,
             .device_id = 0x10ee,
             .subsystem_vendor_id = 0x1af4,
             .subsystem_id = 0x0001,
             .class_code = 0x020000,
             .revision_id = 3},
            std::array<pcie::Bar, 3>{
                {{.size = 16384, .is_64bit = true, .prefetchable = true}, {}, {.size = 8192}}},
            {.vectors = kVectors, .bar = 0, .table_offset = 0x2000, .pba_offset = kPbaOffset}) {
    add_msi(kMsiVectors);
    config().add_vital_product_data(
        {.product_name = "softhca test function", .read_only = {{"PN", "TEST-1"}, {"SN", "0001"}}});
  }

  void have_threads() { set_threads(counted); }

  util::Time run_device(util::Time) override {
    ++runs;
    // One piece of work per run(), as a device with bounded runs does.
    if (!doorbells.empty()) {
      interrupts().raise(static_cast<std::uint16_t>(doorbells.front()));
      doorbells.pop_front();
    }
    if (dma_from) {
      std::array<std::byte, 8> data{};
      set(kDmaOk, dma().read(*std::exchange(dma_from, std::nullopt), data));
      std::memcpy(&memory[kDmaResult], data.data(), data.size());
    }
    if (dma_to) {
      std::array<std::byte, 8> data;
      util::store_le64(data.data(), kDmaPattern);
      set(kDmaOk, dma().write(*std::exchange(dma_to, std::nullopt), data));
    }
    return doorbells.empty() ? util::kNever : util::Time::min();
  }

  std::optional<pcie::SharedBarMemory> shared_memory(unsigned bar) const override {
    if (bar != 2 || shared_fd < 0) return std::nullopt;
    return pcie::SharedBarMemory{.fd = shared_fd, .areas = shared_areas};
  }

  std::array<std::byte, 16384> memory{};
  std::deque<std::uint32_t> doorbells;
  std::optional<pcie::Iova> dma_from;
  std::optional<pcie::Iova> dma_to;
  int shared_fd = -1;
  std::vector<pcie::SharedBarMemory::Area> shared_areas{{.offset = 4096, .size = 4096}};
  std::size_t bytes_read = 0;  ///< from BARs
  unsigned runs = 0;
  unsigned resets = 0;
  std::int64_t reset_work = 0;  ///< cost of a reset
  CountedThreads counted;       ///< if have_threads() was called

 protected:
  void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override {
    bytes_read += out.size();
    std::memset(out.data(), 0, out.size());
    if (bar == 0) std::memcpy(out.data(), &memory[offset], out.size());
  }
  void write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override {
    if (bar != 0) return;
    if (offset == kDoorbell && in.size() == 4) {
      doorbells.push_back(util::load_le32(in.data()));
    } else if (offset == kDmaFrom && in.size() == 8) {
      dma_from = util::load_le64(in.data());
    } else if (offset == kDmaTo && in.size() == 8) {
      dma_to = util::load_le64(in.data());
    } else {
      std::memcpy(&memory[offset], in.data(), in.size());
    }
  }
  void reset_device() override {
    ++resets;
    work().charge(reset_work);
    memory.fill(std::byte{0});
    doorbells.clear();
    dma_from.reset();
    dma_to.reset();
  }

 private:
  void set(std::uint64_t at, bool ok) { util::store_le64(&memory[at], ok ? 1 : 2); }
};

}  // namespace softhca::test

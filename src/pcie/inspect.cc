// Function::inspect: the parts that every function has.
#include <fmt/format.h>

#include <array>

#include "pcie/function.h"
#include "util/endian.h"

namespace softhca::pcie {
namespace {

std::uint16_t read16(const ConfigSpace& config, std::uint32_t at) {
  std::array<std::byte, 2> bytes{};
  config.read(at, bytes);
  return util::load_le16(bytes.data());
}

void inspect_bars(const ConfigSpace& config, util::InspectNode& out) {
  for (unsigned i = 0; i < kBarCount; ++i) {
    if (config.bar(i).size == 0) continue;
    auto& bar = out.child(fmt::format("BAR{}", i));
    bar.add_hex("address", config.bar_address(i));
    bar.add_hex("size", config.bar(i).size);
  }
}

void inspect_interrupts(const Interrupts& interrupts, util::InspectNode& out) {
  const auto& msix = interrupts.msix();
  auto& x = out.child("MSI-X");
  x.add("enabled", msix.enabled());
  x.add("vectors", msix.layout().vectors);
  unsigned pending = 0;
  for (std::uint16_t v = 0; v < msix.layout().vectors; ++v) pending += msix.pending(v);
  x.add("pending", pending);
  if (const auto* msi = interrupts.msi()) {
    auto& m = out.child("MSI");
    m.add("enabled", msi->enabled());
    m.add("vectors", msi->vectors());
    m.add("allocated", msi->allocated());
    m.add_hex("pending", msi->pending());
  }
}

void inspect_mapping(const DmaSpace::Mapping& mapping, util::InspectNode& list) {
  auto& out = list.child("mapping");
  out.add_hex("iova", mapping.iova);
  out.add_hex("size", mapping.size);
  out.add("access", mapping.access == DmaAccess::kReadWrite ? "rw"
                    : mapping.access == DmaAccess::kRead    ? "r"
                                                            : "w");
  out.add("kind", mapping.remote != nullptr ? "by messages" : "local");
}

}  // namespace

void Function::inspect(util::Inspection& out) const {
  const LocalMemoryOnly nobody_is_asked;
  out.group("pci", [&] {
    out.values([&](util::InspectNode& pci) {
      pci.add_hex("vendor_id", read16(config_, 0));
      pci.add_hex("device_id", read16(config_, 2));
      pci.add("memory_space", config_.memory_enabled());
      pci.add("bus_master", config_.bus_master_enabled());
      inspect_bars(config_, pci);
      inspect_interrupts(interrupts_, pci);
    });
    const auto mappings = dma_.mappings();
    out.list(
        {.name = "mappings", .end = mappings.size(), .count = mappings.size()},
        [&](std::uint64_t place) { return &mappings[place]; }, inspect_mapping);
  });
  inspect_device(out);
}

}  // namespace softhca::pcie

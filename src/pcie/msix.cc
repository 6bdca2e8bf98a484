#include "pcie/msix.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "util/endian.h"
#include "util/field.h"

namespace softhca::pcie {
namespace {

/// Vector Control is the last DWORD of a table entry; bit 0 is the Mask bit (PCIe 5.0 7.7.2.9).
constexpr std::size_t kVectorControl = spec::pci::msix_table_entry::mask.kOffset;
constexpr auto kMaskBit = std::byte{1};

}  // namespace

Msix::Msix(const Layout& layout)
    : layout_(layout),
      table_(layout.table_size()),
      pba_(layout.pba_size()),
      externally_masked_(layout.vectors, true) {
  assert(layout.vectors >= 1 && layout.vectors <= kMaxVectors);
  assert(layout.table_offset % 8 == 0 && layout.pba_offset % 8 == 0);
  reset();
}

void Msix::set_sink(InterruptSink* sink, Masking masking) {
  const Paused paused(threads());
  sink_ = sink;
  masking_ = masking;
  std::fill(externally_masked_.begin(), externally_masked_.end(), true);
}

bool Msix::masked(std::uint16_t vector) const {
  if (!bus_master_) return true;
  if (masking_ == Masking::kExternal) return externally_masked_[vector];
  return function_masked_ ||
         (table_[vector * kTableEntrySize + kVectorControl] & kMaskBit) == kMaskBit;
}

bool Msix::sends(std::uint16_t vector) const {
  return vector < layout_.vectors && sink_ != nullptr && !masked(vector) &&
         (enabled_ || masking_ == Masking::kExternal);
}

void Msix::send(std::uint16_t vector) {
  if (trace() != nullptr) {
    using Entry = spec::pci::msix_table_entry;
    const auto entry = util::View<Entry>(std::span(table_).subspan(vector * kTableEntrySize));
    trace()->note(util::TraceStep::kInterrupt, {},
                  {{"vector", vector},
                   {"address", entry.get(Entry::message_address)},
                   {"data", entry.get(Entry::message_data)}});
  }
  sink_->raise(vector);
}

void Msix::raise(std::uint16_t vector) {
  if (vector >= layout_.vectors || sink_ == nullptr) return;
  if (sends(vector)) {
    send(vector);
  } else if (enabled_) {
    set_pending(vector, true);
  }
}

bool Msix::pending(std::uint16_t vector) const {
  return (pba_[vector / 8] & static_cast<std::byte>(1u << (vector % 8))) != std::byte{0};
}

void Msix::set_pending(std::uint16_t vector, bool pending) {
  const auto bit = static_cast<std::byte>(1u << (vector % 8));
  if (pending) {
    pba_[vector / 8] |= bit;
  } else {
    pba_[vector / 8] &= ~bit;
  }
}

void Msix::send_pending() {
  if (sink_ == nullptr || !enabled_) return;
  for (std::size_t at = 0; at < pba_.size(); ++at) {
    if (pba_[at] == std::byte{0}) continue;
    const auto first = static_cast<std::uint16_t>(at * 8);
    const auto end =
        std::min<std::uint16_t>(static_cast<std::uint16_t>(first + 8), layout_.vectors);
    for (auto vector = first; vector < end; ++vector) {
      if (!pending(vector) || masked(vector)) continue;
      set_pending(vector, false);
      send(vector);
    }
  }
}

void Msix::set_vector_masked(std::uint16_t vector, bool masked) {
  assert(masking_ == Masking::kExternal);
  if (vector >= layout_.vectors) return;
  const Paused paused(threads());
  externally_masked_[vector] = masked;
  if (!this->masked(vector) && pending(vector) && sink_ != nullptr) {
    set_pending(vector, false);
    send(vector);
  }
}

void Msix::set_bus_master(bool enabled) {
  if (enabled == bus_master_) return;
  bus_master_ = enabled;
  send_pending();
}

void Msix::set_control(bool enabled, bool function_masked) {
  enabled_ = enabled;
  function_masked_ = function_masked;
  if (!enabled) {
    // Pending messages have no destination any more, and must not reach the next driver.
    std::fill(pba_.begin(), pba_.end(), std::byte{0});
    return;
  }
  send_pending();
}

void Msix::read_table(std::uint32_t offset, std::span<std::byte> out) const {
  assert(offset + out.size() <= table_.size());
  std::memcpy(out.data(), table_.data() + offset, out.size());
}

void Msix::write_table(std::uint32_t offset, std::span<const std::byte> in) {
  assert(offset + in.size() <= table_.size());
  const Paused paused(threads());
  for (const auto value : in) {
    const auto field = offset % kTableEntrySize;
    // Vector Control: only the Mask bit is implemented, its reserved bits read as 0. The Message
    // Address is DWORD-aligned (PCIe 5.0 7.7.2.6).
    const auto writable = field == kVectorControl  ? kMaskBit
                          : field > kVectorControl ? std::byte{0}
                          : field == 0             ? std::byte{0xfc}
                                                   : std::byte{0xff};
    table_[offset++] = value & writable;
  }
  if (masking_ == Masking::kRegisters) send_pending();
}

void Msix::read_pba(std::uint32_t offset, std::span<std::byte> out) const {
  assert(offset + out.size() <= pba_.size());
  std::memcpy(out.data(), pba_.data() + offset, out.size());
}

void Msix::reset() {
  enabled_ = false;
  function_masked_ = false;
  std::fill(pba_.begin(), pba_.end(), std::byte{0});
  std::fill(table_.begin(), table_.end(), std::byte{0});
  for (std::size_t at = kVectorControl; at < table_.size(); at += kTableEntrySize) {
    table_[at] = kMaskBit;  // PCIe 5.0 7.7.2.9: "Default value of this bit is 1b"
  }
}

}  // namespace softhca::pcie

// Descriptors of the operations that programs use (SDXI 6), complete except vl.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "driver/host.h"
#include "spec/sdxi/address.h"
#include "spec/sdxi/descriptor.h"

namespace softhca::driver::sdxi {

namespace spec = ::softhca::spec::sdxi;

/// Memory as a descriptor names it: an address in the address space that an AKey of the context
/// selects. AKey 0 is the function's own memory.
struct Buffer {
  pcie::Iova at = 0;
  std::uint16_t akey = 0;
};

class Descriptor {
 public:
  Descriptor() = default;

  /// No operation, but ordered and completed like any other.
  static Descriptor nop();
  /// Writes 1 to 32 bytes that the descriptor carries. @pre 1 <= data.size() <= 32
  static Descriptor write(Buffer to, std::span<const std::byte> data);
  /// Copies 1 byte to 4 GiB; the buffers must not overlap. @pre size >= 1
  static Descriptor copy(Buffer to, Buffer from, std::uint64_t size);
  /// Writes the `units` * 4 KiB at `from` to `to` and behind it, `copies` times.
  /// @pre addresses are 4 KiB aligned, units 1 to 512, copies 1 to 2^20
  static Descriptor repeat_copy(Buffer to, Buffer from, std::uint32_t units, std::uint32_t copies);
  /// An atomic operation on 4 or 8 bytes; the old value goes to `old_value`, memory of the context.
  static Descriptor atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                           std::uint64_t op1, std::uint64_t op2 = 0,
                           std::optional<pcie::Iova> old_value = std::nullopt);
  /// Raises the interrupt that `akey` names.
  static Descriptor interrupt(std::uint16_t akey);

  // Administrative operations (SDXI 6.6), for context 0.
  static Descriptor start(std::uint16_t first, std::uint16_t last,
                          std::optional<std::uint64_t> doorbell = std::nullopt);
  static Descriptor stop(std::uint16_t first, std::uint16_t last, bool hard);
  static Descriptor update_contexts(spec::tgt_pcd level, std::uint16_t first, std::uint16_t last);
  static Descriptor update_akeys(std::uint16_t context, std::uint16_t first, std::uint16_t last);
  static Descriptor update_rkeys(std::uint16_t first, std::uint16_t last);
  static Descriptor sync(spec::sync_filter filter, std::uint16_t first, std::uint16_t last,
                         std::uint16_t first_key = 0, std::uint16_t last_key = 0);

  /// Makes a PF's administrative descriptor act on its VF `vf_num`, counted from 0 (SDXI 3.5).
  Descriptor& on_vf(std::uint16_t vf_num);
  /// The descriptor begins after all earlier ones of the context have completed (SDXI 5.4).
  Descriptor& fence();
  /// Its writes become visible after those of all earlier descriptors (SDXI 5.6).
  Descriptor& sequential();
  /// Completes in simple mode in the block at `block`, whose signal was set to 1 (SDXI 4.4.2).
  Descriptor& complete_at(pcie::Iova block);
  /// The same in atomic mode: signal is decremented, so that descriptors may share a block.
  Descriptor& count_down_at(pcie::Iova block);

  std::span<const std::byte, spec::kDescriptorSize> bytes() const { return bytes_; }

 private:
  Descriptor(spec::dsc_type type, std::uint8_t subtype);
  template <class Layout>
  util::MutableView<Layout> as() {
    return util::MutableView<Layout>(bytes_);
  }
  void set_block(pcie::Iova block, bool simple);

  alignas(8) std::array<std::byte, spec::kDescriptorSize> bytes_{};
};

}  // namespace softhca::driver::sdxi

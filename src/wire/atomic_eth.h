// The headers of atomic operations: AtomicETH in the request, AtomicAckETH in the response
// (IBTA 9.3.4, 9.3.5.3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using AtomicEthLayout = spec::infiniband::atomic_eth;

struct AtomicEth {
  std::uint64_t virtual_address = 0;
  RKey rkey;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;

  static AtomicEth parse(util::View<AtomicEthLayout> view) {
    using L = AtomicEthLayout;
    return {view.get(L::virtual_address), RKey(view.get(L::r_key)), view.get(L::swap_add_data),
            view.get(L::compare_data)};
  }
  void emit(util::MutableView<AtomicEthLayout> out) const {
    using L = AtomicEthLayout;
    out.set(L::virtual_address, virtual_address);
    out.set(L::r_key, rkey.value());
    out.set(L::swap_add_data, swap_add);
    out.set(L::compare_data, compare);
  }
  friend bool operator==(const AtomicEth&, const AtomicEth&) = default;
};

using MaskedAtomicLayout = spec::infiniband::masked_atomic_data;

/// The payload of a masked atomic, behind its AtomicETH. In a masked FetchAdd, `compare` of the
/// AtomicETH marks the highest bit of each field, beyond which no carry propagates; the masks are
/// not used.
struct MaskedAtomic {
  std::uint64_t swap_mask = 0;
  std::uint64_t compare_mask = 0;
  std::uint32_t size =
      8;  ///< bytes of an operand: 4 or 8; a packet from the wire may hold any value

  static MaskedAtomic parse(util::View<MaskedAtomicLayout> view) {
    using L = MaskedAtomicLayout;
    return {view.get(L::swap_mask), view.get(L::compare_mask), view.get(L::size)};
  }
  void emit(util::MutableView<MaskedAtomicLayout> out) const {
    using L = MaskedAtomicLayout;
    std::ranges::fill(out.bytes(), std::byte{0});
    out.set(L::swap_mask, swap_mask);
    out.set(L::compare_mask, compare_mask);
    out.set(L::size, size);
  }
  friend bool operator==(const MaskedAtomic&, const MaskedAtomic&) = default;
};

using AtomicAckEthLayout = spec::infiniband::atomic_ack_eth;

struct AtomicAckEth {
  std::uint64_t original = 0;  ///< the value at the address before the operation

  static AtomicAckEth parse(util::View<AtomicAckEthLayout> view) {
    return {view.get(AtomicAckEthLayout::original_remote_data)};
  }
  void emit(util::MutableView<AtomicAckEthLayout> out) const {
    out.set(AtomicAckEthLayout::original_remote_data, original);
  }
  friend bool operator==(const AtomicAckEth&, const AtomicAckEth&) = default;
};

}  // namespace softhca::wire

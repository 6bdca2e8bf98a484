// The operation of an atomic request (IBTA 9.4.5): FetchAdd, CmpSwap, and their masked forms of 4
// and 8 bytes, which no InfiniBand document defines (src/wire/README.md). Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/memory_key.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class AtomicOperation {
 public:
  /// The operation of a packet of `frame`, with its operands. @pre the payload has their size
  AtomicOperation(const wire::IbPacket& packet, const wire::Frame& frame);

  bool is_masked() const { return masked_; }
  /// Bytes of the operands. Only those of a masked operation may be others than 8.
  std::uint32_t size() const { return masks_.size; }
  /// Carries the operation out on [address, address + size()) behind `key`, which has passed
  /// check(). `original`: the contents before. False if memory is not reachable: KeyTable::fault().
  /// @pre size() is 4 or 8, and the address is a multiple of it
  bool carry_out(KeyTable& keys, MemoryKey& key, std::uint64_t address,
                 std::uint64_t& original) const;

 private:
  template <class Word>
  Word after(Word before) const;
  std::uint64_t after(std::uint64_t before, std::size_t size) const;
  template <class Word>
  Word carry_out(std::byte* place) const;
  std::uint64_t carry_out_plain(std::byte* place) const;

  bool add_;
  bool masked_;
  std::uint64_t swap_add_;
  std::uint64_t compare_;
  wire::MaskedAtomic masks_{};
};

}  // namespace softhca::rdma

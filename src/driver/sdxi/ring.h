// The producer's side of a descriptor ring: several threads enqueue without a lock, as SDXI 5.2.1
// specifies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "driver/host.h"
#include "driver/sdxi/descriptor.h"

namespace softhca::driver::sdxi {

class Ring {
 public:
  Ring() = default;
  /// `entries` slots of 64 bytes, initially zero; CXT_STS.read_index and Write_Index, 8 bytes each.
  Ring(std::span<std::byte> slots, std::byte* read_index, std::byte* write_index)
      : slots_(slots), read_index_(read_index), write_index_(write_index) {}

  std::uint64_t entries() const { return slots_.size() / spec::kDescriptorSize; }

  /// Reserves and writes consecutive entries and makes them valid. The caller then writes the
  /// returned value to the context's doorbell. If the ring has no room, returns nothing and writes
  /// nothing. Several threads may call it concurrently.
  std::optional<std::uint64_t> enqueue(std::span<const Descriptor> descriptors) const;

  /// The indices up to which the function has taken entries, and producers have reserved them.
  std::uint64_t read_index() const;
  std::uint64_t write_index() const;

 private:
  static void fill(std::byte* slot, const Descriptor& descriptor);

  std::span<std::byte> slots_;
  std::byte* read_index_ = nullptr;
  std::byte* write_index_ = nullptr;
};

}  // namespace softhca::driver::sdxi

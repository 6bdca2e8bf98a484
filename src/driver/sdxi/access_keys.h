// The AKeys of a context (SDXI 3.2.5): what its descriptors may reach.
#pragma once

#include <cstdint>

#include "driver/dma_memory.h"
#include "spec/sdxi/keys.h"
#include "util/field.h"
#include "util/result.h"

namespace softhca::driver::sdxi {

namespace spec = softhca::spec::sdxi;

class Context;

class AccessKeys {
 public:
  /// AKey 0 of every context: the function's own memory.
  static constexpr std::uint16_t kOwnMemory = 0;

  explicit AccessKeys(const Context& context) : context_(context) {}
  util::Result<void> allocate(Host& host);

  /// Makes an AKey, for Buffer, of memory that function `sfunc` granted as `rkey`.
  util::Result<std::uint16_t> reach(std::uint16_t sfunc, std::uint16_t rkey);
  /// Makes an AKey, for Descriptor::interrupt, of interrupt vector `vector` of this function.
  util::Result<std::uint16_t> use_interrupt(std::uint16_t vector);
  /// Frees an AKey; when this returns, it reaches nothing any more.
  util::Result<void> release(std::uint16_t akey);

  DmaBuffer& memory() { return memory_; }

 private:
  using Entry = util::MutableView<spec::akey_ent>;

  Entry entry(std::size_t index) const;
  template <class Fill>
  util::Result<std::uint16_t> make(Fill&& fill);
  util::Result<void> publish(std::uint16_t index);

  const Context& context_;
  DmaBuffer memory_;
};

}  // namespace softhca::driver::sdxi

// What descriptors that are done at once (express.h) look up once in a turn.
#pragma once

#include <array>
#include <cstdint>

#include "sdxi/completion.h"
#include "sdxi/execution.h"
#include "sdxi/memory.h"

namespace softhca::sdxi {

/// What of a function, a context and its keys decides how a descriptor is executed. Within a turn
/// no mapping, register or key changes: who changes them waits for its end, as DSC_AKEY_UPD does
/// (SDXI 4.3.1).
struct ExpressTurn {
  /// The memory behind an AKey, as far as one local mapping of it reaches.
  struct Reach {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t akey = kNone;
    AddressSpace space{};
    pcie::DmaSpace::Window window{};
  };
  /// By AKey, and the last of those that share a place.
  using Reaches = std::array<Reach, 4>;

  HeaderPattern nop{};
  HeaderPattern copy{};
  std::uint64_t max_buffer = 0;  ///< bytes
  /// Bytes that the last copy of a turn may have even if less is left: better than half of it now
  /// and half of it later. The next turn pays for it.
  std::int64_t advance = 0;
  SignalRules signals{};
  Reaches sources{};
  Reaches targets{};
  pcie::DmaSpace::Window blocks{};  ///< completion status blocks

  /// Keys and mappings are looked up again.
  void forget() {
    for (auto& reach : sources) reach.akey = Reach::kNone;
    for (auto& reach : targets) reach.akey = Reach::kNone;
    blocks = {};
  }
};

}  // namespace softhca::sdxi

// State that the fast path (express.h) looks up once in a turn.
#pragma once

#include <array>
#include <cstdint>

#include "sdxi/completion.h"
#include "sdxi/execution.h"
#include "sdxi/memory.h"

namespace softhca::sdxi {

/// The inputs, from a function, a context and its keys, that decide how a descriptor is executed.
/// No mapping, register or key changes within a turn: the thread that changes one waits for the
/// turn's end, as DSC_AKEY_UPD does (SDXI 4.3.1).
struct ExpressTurn {
  /// The memory behind an AKey, up to the end of one local mapping.
  struct Reach {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t akey = kNone;
    AddressSpace space{};
    pcie::DmaSpace::Window window{};
  };
  /// Cache indexed by AKey; keys that share a slot evict each other.
  using Reaches = std::array<Reach, 4>;

  HeaderPattern nop{};
  HeaderPattern copy{};
  std::uint64_t max_buffer = 0;  ///< bytes
  /// A turn's last copy may have this many bytes even if the deficit is smaller, so that it is not
  /// split over two turns. The next turn pays for it.
  std::int64_t advance = 0;
  SignalRules signals{};
  Reaches sources{};
  Reaches targets{};
  pcie::DmaSpace::Window blocks{};  ///< completion status blocks

  /// Invalidates the cached keys and mappings, which are then looked up again.
  void forget() {
    for (auto& reach : sources) reach.akey = Reach::kNone;
    for (auto& reach : targets) reach.akey = Reach::kNone;
    blocks = {};
  }
};

}  // namespace softhca::sdxi

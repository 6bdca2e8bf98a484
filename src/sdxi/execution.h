// A descriptor that is being executed (SDXI 5.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sdxi/format.h"
#include "sdxi/injected.h"
#include "util/field.h"

namespace softhca::sdxi {

struct Operation;

/// A descriptor that is being executed: its copy, taken once, and its progress.
struct Execution {
  alignas(8) std::array<std::byte, spec::kDescriptorSize> descriptor{};
  const Operation* operation = nullptr;
  std::uint64_t index = 0;   ///< in the ring
  std::uint64_t done = 0;    ///< bytes or contexts that are finished
  std::uint64_t ticket = 0;  ///< DSC_SYNC: the Doorbells::end() that it waits for, plus one
  bool executing = false;
  bool executed = false;  ///< all but the completion is done
  Injected injected;

  template <class Layout>
  util::View<Layout> as() const {
    return util::View<Layout>(descriptor);
  }
};

/// The inputs, from a function and a context, that decide whether a header is accepted; valid for
/// one turn.
struct HeaderRules {
  std::uint32_t groups;  ///< SDXI 5.1: opb_000_cap & opb_000_avl & opb_000_enb
  bool administrative;   ///< context 0
  bool simple_only;      ///< csr must be 1 (SDXI 4.4.2)
};

/// Matches the accepted headers of one operation by the bits of their first word. By default it
/// matches nothing.
struct HeaderPattern {
  std::uint32_t mask = 0;
  std::uint32_t value = 1;

  bool matches(std::uint32_t word) const { return (word & mask) == value; }
};

}  // namespace softhca::sdxi

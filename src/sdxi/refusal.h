// Why the function refused something: what goes into the error log record (SDXI 3.4.1), and the
// same in words for people. Made on hot paths, so it owns nothing: the words are literals.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tl/expected.hpp>

#include "sdxi/format.h"

namespace softhca::sdxi {

struct Refusal {
  spec::err_step step;
  spec::err_sub_step sub_step = spec::err_sub_step::SUB_OTHER;
  spec::err_class err_class = spec::err_class::GENERIC;
  std::optional<std::uint8_t> buffer{};  ///< which buffer or AKey of the descriptor
  std::string_view reason{};             ///< a literal
  std::string_view section{};            ///< of the document
  std::uint64_t value = 0;               ///< the number that `reason` is about
  /// Whose structures are meant; if none, those of the context that executes.
  std::optional<ContextNumber> context{};
  bool logged = false;  ///< by another function already (SDXI 3.5)
};

template <class T>
using Checked = tl::expected<T, Refusal>;

inline tl::unexpected<Refusal> refuse(const Refusal& refusal) {
  return tl::unexpected<Refusal>(refusal);
}

/// A descriptor or a register that the document does not allow.
inline Refusal invalid(spec::err_step step, spec::err_class err_class, std::string_view reason,
                       std::string_view section, std::uint64_t value = 0) {
  return {.step = step,
          .sub_step = spec::err_sub_step::SUB_VALIDATION,
          .err_class = err_class,
          .reason = reason,
          .section = section,
          .value = value};
}

}  // namespace softhca::sdxi

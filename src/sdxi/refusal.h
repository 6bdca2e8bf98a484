// Why the function refused something: the contents of the error log record (SDXI 3.4.1), and a text
// for users. Hot paths make it, so it owns nothing: its strings are literals.
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
  std::uint64_t value = 0;               ///< the number that `reason` refers to
  /// The context whose structures are faulty; if none, the context that executes.
  std::optional<ContextNumber> context{};
  bool logged = false;  ///< another function has logged it already (SDXI 3.5)
};

template <class T>
using Checked = tl::expected<T, Refusal>;

inline tl::unexpected<Refusal> refuse(const Refusal& refusal) {
  return tl::unexpected<Refusal>(refusal);
}

/// A descriptor or a register value that the document does not allow.
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

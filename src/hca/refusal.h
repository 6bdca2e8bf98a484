// Refusals of commands: a status of the document, and a reason.
#pragma once

#include <cstdint>
#include <string_view>
#include <tl/expected.hpp>

namespace softhca::hca {

/// Why a command failed. The guest gets the status and, if the document has a field for it, the
/// syndrome. The log gets all four. `Status` is the document's enumeration.
template <class Status>
struct Refusal {
  Status status;
  /// A hash of section and text, so a check keeps its number across releases.
  std::uint32_t syndrome;
  std::string_view text;     ///< which check failed, in words
  std::string_view section;  ///< section of the document that demands the check
};

/// The result of a command.
template <class Status>
using CommandResult = tl::expected<void, Refusal<Status>>;

/// Number of a check, hashed from its words (FNV-1a, never 0).
constexpr std::uint32_t syndrome_of(std::string_view section, std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const auto part : {section, text}) {
    for (const char c : part) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
  }
  return hash | 1;
}

/// `return refuse(Status::kBadResource, "12.8.1", "unknown PD");` Both texts must be literals.
template <class Status>
constexpr tl::unexpected<Refusal<Status>> refuse(Status status, std::string_view section,
                                                 std::string_view text) {
  return tl::unexpected<Refusal<Status>>(
      Refusal<Status>{status, syndrome_of(section, text), text, section});
}

}  // namespace softhca::hca

// One command of chapter 12: its input and output, and how a handler refuses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::connectx {

using Status = spec::connectx::command_status;

/// Why a command failed. The guest sees status and syndrome; the log has all four.
struct Refusal {
  Status status;
  /// Made from section and text: the same check has the same number for ever.
  std::uint32_t syndrome;
  std::string_view text;     ///< which check failed, in words
  std::string_view section;  ///< where the document demands it
};

using CommandResult = tl::expected<void, Refusal>;

/// A number for a check, from its words (FNV-1a, never 0).
constexpr std::uint32_t syndrome_of(std::string_view section, std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const auto part : {section, text}) {
    for (const char c : part) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
  }
  return hash | 1;
}

/// `return refuse(Status::BAD_RESOURCE, "PRM 12.8.1", "unknown PD");` Both texts must be literals.
constexpr tl::unexpected<Refusal> refuse(Status status, std::string_view section,
                                         std::string_view text) {
  return tl::unexpected<Refusal>(Refusal{status, syndrome_of(section, text), text, section});
}

/// A command under execution. `in` holds at least the input size and `out` at least the output size
/// that the command table states for the opcode; `out` is zero at first, and status and syndrome
/// are written by the caller of the handler.
struct Command {
  std::uint16_t opcode;
  std::uint16_t op_mod;
  std::uint16_t uid;
  std::span<const std::byte> in;
  std::span<std::byte> out;

  template <class Layout>
  util::View<Layout> input() const {
    return util::View<Layout>(in);
  }
  template <class Layout>
  util::MutableView<Layout> output() const {
    return util::MutableView<Layout>(out);
  }
  /// The bytes from `offset` to the end of the input: a list whose length the sender decides.
  std::span<const std::byte> in_tail(std::size_t offset) const {
    return offset < in.size() ? in.subspan(offset) : std::span<const std::byte>();
  }
};

class Device;
using CommandHandler = CommandResult (*)(Device& device, const Command& command);

}  // namespace softhca::connectx

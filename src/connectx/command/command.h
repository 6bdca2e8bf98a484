// A command of chapter 12: its input, its output and its refusal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "connectx/command/command_input.h"
#include "hca/refusal.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"
#include "util/work_budget.h"

namespace softhca::connectx {

using Status = spec::connectx::command_status;

using Refusal = hca::Refusal<Status>;
using CommandResult = hca::CommandResult<Status>;
using hca::refuse;
using hca::syndrome_of;

/// A command in execution. `in` and `out` have at least the sizes that the command table states for
/// the opcode. `out` is initially zero. The caller of the handler writes status and syndrome.
struct Command {
  std::uint16_t opcode;
  std::uint16_t op_mod;
  std::uint16_t uid;
  std::size_t sent;  ///< bytes of `in` that the driver sent; the others are zeros
  std::span<const std::byte> in;
  std::span<std::byte> out;
  /// The whole input. `in` is its beginning.
  const CommandInput& all;
  /// Handlers charge their work here, except for reading and writing messages. When it is spent,
  /// they stop.
  util::WorkBudget& work;
  /// Set by a handler that stops early, to be called again in a later turn, before any other
  /// command. Its return value is then ignored.
  bool& unfinished;

  template <class Layout>
  util::View<Layout> input() const {
    return util::View<Layout>(in);
  }
  template <class Layout>
  util::MutableView<Layout> output() const {
    return util::MutableView<Layout>(out);
  }
  /// The input from `offset` to its end: a list whose length the sender chooses.
  std::span<const std::byte> in_tail(std::size_t offset) const {
    return offset < in.size() ? in.subspan(offset) : std::span<const std::byte>();
  }
};

/// True if a mask of fields to change has bits outside `known`.
template <class Layout, class... Fields>
bool has_unknown_bits(util::View<Layout> mask, Fields... known) {
  util::Struct<Layout> rest;
  std::ranges::copy(mask.bytes(), rest.bytes().begin());
  (rest.set(known, 0), ...);
  return std::ranges::any_of(rest.bytes(), [](std::byte b) { return b != std::byte{}; });
}

class DriverState;
using CommandHandler = CommandResult (*)(DriverState& driver, const Command& command);

}  // namespace softhca::connectx

// One command of chapter 12: its input and output, and how a handler refuses it.
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
using CommandResult = hca::Verdict<Status>;
using hca::refuse;
using hca::syndrome_of;

/// A command under execution. `in` holds at least the input size, and `out` at least the output
/// size, that the command table states for the opcode. `out` is initially zero. The caller of the
/// handler writes status and syndrome.
struct Command {
  std::uint16_t opcode;
  std::uint16_t op_mod;
  std::uint16_t uid;
  std::size_t sent;  ///< bytes of `in` that the driver sent; the rest are zeros
  std::span<const std::byte> in;
  std::span<std::byte> out;
  /// The whole input; `in` is its beginning.
  const CommandInput& all;
  /// Handlers charge their work here, except for reading and writing messages, and stop when it is
  /// spent.
  util::WorkBudget& work;
  /// A handler sets it to stop early and be called again in a later turn, before any other command.
  /// Its return value is then ignored.
  bool& unfinished;

  template <class Layout>
  util::View<Layout> input() const {
    return util::View<Layout>(in);
  }
  template <class Layout>
  util::MutableView<Layout> output() const {
    return util::MutableView<Layout>(out);
  }
  /// The input from `offset` to its end: a list whose length the sender decides.
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

class Device;
using CommandHandler = CommandResult (*)(Device& device, const Command& command);

}  // namespace softhca::connectx

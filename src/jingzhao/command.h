// One command of the HCR (JingZhao 3.2), and how a handler refuses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hca/refusal.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"
#include "util/field.h"

namespace softhca::jingzhao {

using Status = spec::jingzhao::hcr_status;
using Opcode = spec::jingzhao::command_opcode;
using Refusal = hca::Refusal<Status>;
using CommandResult = hca::CommandResult<Status>;
using hca::refuse;

/// A command with its mailboxes. `in`: all input bytes that the command uses. `out`: the output
/// bytes, initially zero.
struct Command {
  Opcode op{};
  std::uint8_t op_modifier = 0;
  std::uint32_t in_modifier = 0;
  std::uint64_t in_param = 0;
  std::span<const std::byte> in = {};
  std::span<std::byte> out = {};

  template <class Layout>
  util::View<Layout> input() const {
    return util::View<Layout>(in);
  }
  template <class Layout>
  util::MutableView<Layout> output() const {
    return util::MutableView<Layout>(out);
  }
};

class Device;
using CommandHandler = CommandResult (*)(Device& device, const Command& command);

}  // namespace softhca::jingzhao

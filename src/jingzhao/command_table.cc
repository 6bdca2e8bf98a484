#include "jingzhao/command_table.h"

#include <algorithm>
#include <array>

#include "spec/infiniband/mad.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao {

using spec::infiniband::smp;
using spec::jingzhao::icm_chunk;
using spec::jingzhao::mad_ifc_out;
using spec::jingzhao::mtt_entry_group;
using spec::jingzhao::qp_context;
using spec::jingzhao::write_mtt_in;

namespace {

// Values of op_modifier, a bit each.
constexpr std::uint32_t kOnly0 = 1;
constexpr std::uint32_t k0Or1 = 0b11;  ///< the author's driver resizes CQs with 1
constexpr std::uint32_t k0Or3 = 0b1001;
constexpr std::uint32_t kGroups = 0b110;  ///< icm_group
constexpr std::uint32_t kUpTo3 = 0b1111;
constexpr std::uint32_t kAny = UINT32_MAX;

constexpr std::array kCommands{
#define JINGZHAO_COMMAND(name, in, out, modifiers, handler, needs_init, section, lacks) \
  CommandInfo{Opcode::name, #name, in, out, modifiers, handler, needs_init, section, lacks},
#include "jingzhao/command_list.inc"
#undef JINGZHAO_COMMAND
};

}  // namespace

std::span<const CommandInfo> command_table() { return kCommands; }

const CommandInfo* find_command(Opcode op) {
  const auto found = std::ranges::find(kCommands, op, &CommandInfo::op);
  return found == kCommands.end() ? nullptr : &*found;
}

CommandResult input_size(const CommandInfo& info, const Command& command, std::uint32_t& size) {
  size = info.in;
  if (info.in == kMadOrStatus) size = command.in_param == 0 ? 0 : smp::kSize;
  if (info.in == kContextOrNone) {
    constexpr std::uint8_t kNone = 3;
    size = command.op_modifier == kNone ? 0 : qp_context::kSize;
  }
  if (info.in != kListed) return {};
  const std::uint64_t count = command.in_modifier;
  std::uint64_t bytes;
  if (info.op == Opcode::MAP_ICM) {
    // Entries come in groups of two.
    bytes = (count + 1) / 2 * 2 * icm_chunk::kSize;
  } else {
    bytes = write_mtt_in::kSize + (count + 3) / 4 * mtt_entry_group::kSize;
  }
  if (count == 0 || bytes > kMailbox) {
    return refuse(Status::BAD_PARAM, "3.2", "in_modifier: no entries, or more than a mailbox has");
  }
  size = static_cast<std::uint32_t>(bytes);
  return {};
}

std::uint32_t output_size(const CommandInfo& info, const Command& command) {
  if (info.out != kMadOrStatus) return info.out;
  return command.in_param == 0 ? mad_ifc_out::kSize : smp::kSize;
}

}  // namespace softhca::jingzhao

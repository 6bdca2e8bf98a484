#include "uverbs/devx_commands.h"

#include "spec/connectx/command.h"
#include "spec/connectx/command_role.h"
#include "spec/connectx/resources.h"
#include "util/field.h"
#include "uverbs/read_struct.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;
using Bytes = std::span<const std::byte>;

namespace {

/// The range of general commands in Linux (MLX5_CMD_OP_GENERAL_START to GENERAL_END).
constexpr std::uint16_t kGeneralBegin = 0xb00, kGeneralEnd = 0xd00;
/// op_mod values of SET_FLOW_TABLE_ENTRY.
constexpr std::uint16_t kNewEntry = 0, kChangedEntry = 1;

std::uint16_t op_mod_of(Bytes in) {
  using In = spec::command_input_header;
  return static_cast<std::uint16_t>(Read<In>(in).get(In::op_mod));
}

/// Whether the command is for another function of the device. Its vhca_tunnel_id
/// (general_obj_in_cmd_hdr of Linux) names the function.
bool is_for_another(Bytes in) {
  constexpr std::size_t kTunnel = 4;
  return in[kTunnel] != std::byte{0} || in[kTunnel + 1] != std::byte{0};
}

/// The role of a command. Null if `verb` is not what it does, or if DevX does not have it.
const spec::CommandRole* find_role(Bytes in, spec::Verb verb) {
  const auto* role = spec::find_role(opcode_of(in));
  return role != nullptr && role->by_devx && role->object.verb == verb ? role : nullptr;
}

std::optional<DevxName> subject_in(Bytes in, spec::Verb verb) {
  const auto* role = find_role(in, verb);
  if (role == nullptr || is_for_another(in)) return std::nullopt;
  return DevxName{.kind = role->object.kind, .number = role->object.number.read(in)};
}

}  // namespace

Op opcode_of(Bytes in) {
  using In = spec::command_input_header;
  return static_cast<Op>(Read<In>(in).get(In::opcode));
}

void set_uid(std::span<std::byte> in, std::uint16_t uid) {
  using In = spec::command_input_header;
  util::MutableView<In>(in).set(In::uid, uid);
}

bool makes_object(Bytes in) {
  using Psv = spec::create_psv_in;
  if (is_for_another(in)) return false;
  const auto opcode = opcode_of(in);
  if (opcode == Op::SET_FLOW_TABLE_ENTRY) return op_mod_of(in) == kNewEntry;
  // An object has one number, by which it ends.
  if (opcode == Op::CREATE_PSV) return Read<Psv>(in).get(Psv::num_psv) == 1;
  return find_role(in, spec::Verb::kMakes) != nullptr;
}

std::optional<DevxName> changed_object(Bytes in) {
  if (opcode_of(in) != Op::SET_FLOW_TABLE_ENTRY) return subject_in(in, spec::Verb::kChanges);
  // The same command makes and changes an entry.
  if (op_mod_of(in) != kChangedEntry) return std::nullopt;
  return subject_in(in, spec::Verb::kMakes);
}

std::optional<DevxName> asked_object(Bytes in) { return subject_in(in, spec::Verb::kReads); }

bool is_general(Bytes in) {
  const auto number = static_cast<std::uint16_t>(opcode_of(in));
  return (number >= kGeneralBegin && number < kGeneralEnd) ||
         find_role(in, spec::Verb::kOpen) != nullptr;
}

bool is_for_everybody(Bytes in) {
  const auto opcode = opcode_of(in);
  return opcode == Op::QUERY_HCA_CAP || opcode == Op::QUERY_HCA_VPORT_CONTEXT ||
         opcode == Op::QUERY_ESW_VPORT_CONTEXT;
}

DevxName made_object(Bytes in, Bytes out) {
  const auto& made = spec::find_role(opcode_of(in))->object;
  return {.kind = made.kind, .number = made.number.read(made.in_output ? out : in)};
}

std::vector<std::byte> end_of(Bytes in, const DevxName& made) {
  using Header = spec::command_input_header;
  const auto* end = spec::find_end(made.kind);
  if (end == nullptr) return {};
  std::vector<std::byte> out(end->input);
  util::MutableView<Header>(out).set(Header::opcode, static_cast<std::uint16_t>(end->opcode));
  set_uid(out, static_cast<std::uint16_t>(Read<Header>(in).get(Header::uid)));
  for (const auto& field : spec::shared_fields_of(end->opcode)) {
    field.ends.write(out, field.made.read(in));
  }
  end->object.number.write(out, made.number);
  return out;
}

}  // namespace softhca::uverbs

#include "uverbs/devx_commands.h"

#include <algorithm>
#include <array>

#include "spec/connectx/command.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
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

template <class Layout, auto Field>
std::uint32_t number_in(Bytes bytes) {
  return Read<Layout>(bytes).get(Field);
}

template <class In, auto Opcode, auto Field>
std::vector<std::byte> ending(std::uint32_t number) {
  std::vector<std::byte> out(In::kSize);
  const util::MutableView<In> command(out);
  command.set(In::opcode, static_cast<std::uint16_t>(Opcode));
  command.set(Field, number);
  return out;
}

struct Maker {
  Op opcode;
  std::uint32_t (*number)(Bytes out);
  std::vector<std::byte> (*end)(std::uint32_t number);
};
struct Subject {
  Op opcode;
  Op maker;
  std::uint32_t (*number)(Bytes in);
};

constexpr auto kMakers = std::to_array<Maker>({
#define MAKES(opcode, name, field, end, end_name, end_field)         \
  {Op::opcode, number_in<spec::name##_out, spec::name##_out::field>, \
   ending<spec::end_name##_in, Op::end, spec::end_name##_in::end_field>},
#define CHANGES(opcode, name, field, maker)
#define ASKS(opcode, name, field, maker)
#define GENERAL(opcode)
#define UNKNOWN(opcode)
#include "uverbs/devx_command_list.inc"
});

constexpr auto kChanges = std::to_array<Subject>({
#define MAKES(opcode, name, field, end, end_name, end_field)
#define CHANGES(opcode, name, field, maker) \
  {Op::opcode, Op::maker, number_in<spec::name##_in, spec::name##_in::field>},
#define ASKS(opcode, name, field, maker)
#define GENERAL(opcode)
#define UNKNOWN(opcode)
#include "uverbs/devx_command_list.inc"
});

constexpr auto kQuestions = std::to_array<Subject>({
#define MAKES(opcode, name, field, end, end_name, end_field)
#define CHANGES(opcode, name, field, maker)
#define ASKS(opcode, name, field, maker) \
  {Op::opcode, Op::maker, number_in<spec::name##_in, spec::name##_in::field>},
#define GENERAL(opcode)
#define UNKNOWN(opcode)
#include "uverbs/devx_command_list.inc"
});

constexpr auto kGeneral = std::to_array<Op>({
#define MAKES(opcode, name, field, end, end_name, end_field)
#define CHANGES(opcode, name, field, maker)
#define ASKS(opcode, name, field, maker)
#define GENERAL(opcode) Op::opcode,
#define UNKNOWN(opcode)
#include "uverbs/devx_command_list.inc"
});

constexpr auto kUnknown = std::to_array<Op>({
#define MAKES(opcode, name, field, end, end_name, end_field)
#define CHANGES(opcode, name, field, maker)
#define ASKS(opcode, name, field, maker)
#define GENERAL(opcode)
#define UNKNOWN(opcode) Op::opcode,
#include "uverbs/devx_command_list.inc"
});

const Maker* find_maker(Op opcode) {
  const auto* at = std::ranges::find(kMakers, opcode, &Maker::opcode);
  return at == kMakers.end() ? nullptr : at;
}

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

std::optional<DevxName> subject_in(std::span<const Subject> list, Bytes in) {
  if (is_for_another(in)) return std::nullopt;
  const auto at = std::ranges::find(list, opcode_of(in), &Subject::opcode);
  if (at == list.end()) return std::nullopt;
  return DevxName{.maker = at->maker, .number = at->number(in)};
}

/// Builds the command that destroys a flow table, group or entry. The type of its table, and its
/// vport if that is another's, come from `in`.
template <class End, class In>
std::vector<std::byte> end_in_table(Op opcode, Bytes in, std::uint32_t table) {
  const Read<In> from(in);
  std::vector<std::byte> out(End::kSize);
  const util::MutableView<End> command(out);
  command.set(End::opcode, static_cast<std::uint16_t>(opcode));
  command.set(End::other_vport, from.get(In::other_vport));
  command.set(End::vport_number, from.get(In::vport_number));
  command.set(End::table_type, from.get(In::table_type));
  command.set(End::table_id, table);
  return out;
}

std::vector<std::byte> end_without_uid(Bytes in, const DevxName& made) {
  switch (made.maker) {
    case Op::CREATE_FLOW_TABLE:
      return end_in_table<spec::destroy_flow_table_in, spec::create_flow_table_in>(
          Op::DESTROY_FLOW_TABLE, in, made.number);
    case Op::CREATE_FLOW_GROUP: {
      using In = spec::create_flow_group_in;
      using End = spec::destroy_flow_group_in;
      auto out = end_in_table<End, In>(Op::DESTROY_FLOW_GROUP, in, number_in<In, In::table_id>(in));
      util::MutableView<End>(out).set(End::group_id, made.number);
      return out;
    }
    case Op::SET_FLOW_TABLE_ENTRY: {
      using In = spec::set_flow_table_entry_in;
      using End = spec::delete_flow_table_entry_in;
      auto out =
          end_in_table<End, In>(Op::DELETE_FLOW_TABLE_ENTRY, in, number_in<In, In::table_id>(in));
      util::MutableView<End>(out).set(End::flow_index, made.number);
      return out;
    }
    case Op::ATTACH_TO_MCG: {
      using In = spec::attach_to_mcg_in;
      using End = spec::detach_from_mcg_in;
      const Read<In> from(in);
      std::vector<std::byte> out(End::kSize);
      const util::MutableView<End> command(out);
      command.set(End::opcode, static_cast<std::uint16_t>(Op::DETACH_FROM_MCG));
      command.set(End::qpn, made.number);
      std::ranges::copy(from.get(In::multicast_gid), command.sub(End::multicast_gid).begin());
      return out;
    }
    default: {
      const auto* maker = find_maker(made.maker);
      return maker == nullptr ? std::vector<std::byte>() : maker->end(made.number);
    }
  }
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
  if (is_for_another(in)) return false;
  const auto opcode = opcode_of(in);
  switch (opcode) {
    case Op::CREATE_FLOW_TABLE:
    case Op::CREATE_FLOW_GROUP:
    case Op::ATTACH_TO_MCG:
      return true;
    case Op::SET_FLOW_TABLE_ENTRY:
      return op_mod_of(in) == kNewEntry;
    case Op::CREATE_PSV:
      // An object has one number, by which it ends.
      return number_in<spec::create_psv_in, spec::create_psv_in::num_psv>(in) == 1;
    default:
      return find_maker(opcode) != nullptr || std::ranges::find(kUnknown, opcode) != kUnknown.end();
  }
}

std::optional<DevxName> changed_object(Bytes in) {
  if (opcode_of(in) != Op::SET_FLOW_TABLE_ENTRY) return subject_in(kChanges, in);
  using In = spec::set_flow_table_entry_in;
  if (op_mod_of(in) != kChangedEntry || is_for_another(in)) return std::nullopt;
  return DevxName{.maker = Op::SET_FLOW_TABLE_ENTRY, .number = number_in<In, In::flow_index>(in)};
}

std::optional<DevxName> asked_object(Bytes in) { return subject_in(kQuestions, in); }

bool is_general(Bytes in) {
  const auto opcode = opcode_of(in);
  const auto number = static_cast<std::uint16_t>(opcode);
  return (number >= kGeneralBegin && number < kGeneralEnd) ||
         std::ranges::find(kGeneral, opcode) != kGeneral.end();
}

bool is_for_everybody(Bytes in) {
  const auto opcode = opcode_of(in);
  return opcode == Op::QUERY_HCA_CAP || opcode == Op::QUERY_HCA_VPORT_CONTEXT ||
         opcode == Op::QUERY_ESW_VPORT_CONTEXT;
}

DevxName made_object(Bytes in, Bytes out) {
  const auto opcode = opcode_of(in);
  const auto named = [&](std::uint32_t number) { return DevxName{opcode, number}; };
  switch (opcode) {
    case Op::CREATE_FLOW_TABLE:
      using Table = spec::create_flow_table_out;
      return named(number_in<Table, Table::table_id>(out));
    case Op::CREATE_FLOW_GROUP:
      using Group = spec::create_flow_group_out;
      return named(number_in<Group, Group::group_id>(out));
    case Op::SET_FLOW_TABLE_ENTRY:
      using Entry = spec::set_flow_table_entry_in;
      return named(number_in<Entry, Entry::flow_index>(in));
    case Op::ATTACH_TO_MCG:
      using Member = spec::attach_to_mcg_in;
      return named(number_in<Member, Member::qpn>(in));
    default: {
      const auto* maker = find_maker(opcode);
      return named(maker == nullptr ? 0 : maker->number(out));
    }
  }
}

std::vector<std::byte> end_of(Bytes in, const DevxName& made) {
  using Header = spec::command_input_header;
  auto out = end_without_uid(in, made);
  if (!out.empty()) {
    set_uid(out, static_cast<std::uint16_t>(Read<Header>(in).get(Header::uid)));
  }
  return out;
}

}  // namespace softhca::uverbs

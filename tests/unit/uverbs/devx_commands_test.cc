// DevX commands: the object that a command makes or changes, and the command that ends it.
#include "uverbs/devx_commands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "spec/connectx/command.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "util/field.h"

namespace softhca::uverbs {
namespace {

namespace layout = softhca::spec::connectx;
using layout::command_opcode;
using layout::object_kind;

constexpr std::uint16_t kUid = 7;

template <class In>
void set_opcode(const util::MutableView<In>& in, command_opcode opcode) {
  in.set(In::opcode, static_cast<std::uint16_t>(opcode));
  set_uid(in.bytes(), kUid);
}

/// A command of a flow table of another vport.
template <class In>
void set_table(const util::MutableView<In>& in) {
  in.set(In::other_vport, 1);
  in.set(In::vport_number, 3);
  in.set(In::table_type, 4);
}

template <class End>
void expect_end(const std::vector<std::byte>& end, command_opcode opcode) {
  using Header = layout::command_input_header;
  ASSERT_EQ(end.size(), End::kSize);
  const util::View<End> command(end);
  EXPECT_EQ(opcode_of(end), opcode);
  EXPECT_EQ(util::View<Header>(end).get(Header::uid), kUid);
  EXPECT_EQ(command.get(End::other_vport), 1u);
  EXPECT_EQ(command.get(End::vport_number), 3u);
  EXPECT_EQ(command.get(End::table_type), 4u);
}

TEST(DevxCommand, TheEndOfAFlowTableHasItsVportAndType) {
  using Out = layout::create_flow_table_out;
  using End = layout::destroy_flow_table_in;
  util::Struct<layout::create_flow_table_in> in;
  util::Struct<Out> out;
  set_opcode(in, command_opcode::CREATE_FLOW_TABLE);
  set_table(in);
  out.set(Out::table_id, 0xABCDEF);
  const auto made = made_object(in.bytes(), out.bytes());
  EXPECT_EQ(made, (DevxName{object_kind::FLOW_TABLE, 0xABCDEF}));
  const auto end = end_of(in.bytes(), made);
  expect_end<End>(end, command_opcode::DESTROY_FLOW_TABLE);
  EXPECT_EQ(util::View<End>(end).get(End::table_id), 0xABCDEFu);
}

TEST(DevxCommand, TheEndOfAFlowGroupHasItsTable) {
  using In = layout::create_flow_group_in;
  using Out = layout::create_flow_group_out;
  using End = layout::destroy_flow_group_in;
  util::Struct<In> in;
  util::Struct<Out> out;
  set_opcode(in, command_opcode::CREATE_FLOW_GROUP);
  set_table(in);
  in.set(In::table_id, 0xABCDEF);
  out.set(Out::group_id, 5);
  const auto made = made_object(in.bytes(), out.bytes());
  EXPECT_EQ(made, (DevxName{object_kind::FLOW_GROUP, 5}));
  const auto end = end_of(in.bytes(), made);
  expect_end<End>(end, command_opcode::DESTROY_FLOW_GROUP);
  EXPECT_EQ(util::View<End>(end).get(End::table_id), 0xABCDEFu);
  EXPECT_EQ(util::View<End>(end).get(End::group_id), 5u);
}

TEST(DevxCommand, AFlowEntryIsMadeOrChangedByOpModAndEndsInItsTable) {
  using In = layout::set_flow_table_entry_in;
  using Out = layout::set_flow_table_entry_out;
  using End = layout::delete_flow_table_entry_in;
  util::Struct<In> in;
  const util::Struct<Out> out;
  set_opcode(in, command_opcode::SET_FLOW_TABLE_ENTRY);
  set_table(in);
  in.set(In::table_id, 0xABCDEF);
  in.set(In::flow_index, 9);
  const DevxName name{object_kind::FLOW_ENTRY, 9};
  EXPECT_TRUE(makes_object(in.bytes()));
  EXPECT_FALSE(changed_object(in.bytes()));
  EXPECT_EQ(made_object(in.bytes(), out.bytes()), name);
  const auto end = end_of(in.bytes(), name);
  expect_end<End>(end, command_opcode::DELETE_FLOW_TABLE_ENTRY);
  EXPECT_EQ(util::View<End>(end).get(End::table_id), 0xABCDEFu);
  EXPECT_EQ(util::View<End>(end).get(End::flow_index), 9u);
  in.set(In::op_mod, 1);
  EXPECT_FALSE(makes_object(in.bytes()));
  EXPECT_EQ(changed_object(in.bytes()), name);
  in.set(In::op_mod, 2);
  EXPECT_FALSE(makes_object(in.bytes()));
  EXPECT_FALSE(changed_object(in.bytes()));
}

TEST(DevxCommand, TheEndOfAMembershipHasItsGroup) {
  using In = layout::attach_to_mcg_in;
  using End = layout::detach_from_mcg_in;
  util::Struct<In> in;
  const util::Struct<layout::attach_to_mcg_out> out;
  set_opcode(in, command_opcode::ATTACH_TO_MCG);
  in.set(In::qpn, 0x1234);
  const auto group = in.sub(In::multicast_gid);
  for (std::size_t i = 0; i != group.size(); ++i) group[i] = static_cast<std::byte>(i + 1);
  const auto made = made_object(in.bytes(), out.bytes());
  EXPECT_EQ(made, (DevxName{object_kind::MCG_MEMBER, 0x1234}));
  const auto end = end_of(in.bytes(), made);
  ASSERT_EQ(end.size(), End::kSize);
  EXPECT_EQ(opcode_of(end), command_opcode::DETACH_FROM_MCG);
  EXPECT_EQ(util::View<End>(end).get(End::qpn), 0x1234u);
  EXPECT_TRUE(std::ranges::equal(util::View<End>(end).get(End::multicast_gid), group));
}

TEST(DevxCommand, AListOfKeysLiesInNoMemory) {
  using In = layout::create_mkey_in;
  for (const auto mode : {layout::mkey_access_mode::MTT, layout::mkey_access_mode::KLM}) {
    util::Struct<In> in;
    set_opcode(in, command_opcode::CREATE_MKEY);
    in.sub(In::mkey_context)
        .set(layout::mkey_context::access_mode, static_cast<std::uint32_t>(mode));
    in.set(In::mkey_umem_id, 6);
    mark_umems(in.bytes());
    const bool lies = mode == layout::mkey_access_mode::MTT;
    EXPECT_EQ(in.get(In::mkey_umem_valid), lies ? 1u : 0u);
    EXPECT_EQ(place_of(in.bytes()).memory, lies ? 6u : 0u);
  }
}

/// A command that ends inside a field: what is missing reads as zeros.
TEST(DevxCommand, AShortCommandNamesObjectsByTheBytesThatItHas) {
  using In = layout::query_q_counter_in;
  util::Struct<In> in;
  set_opcode(in, command_opcode::QUERY_Q_COUNTER);
  in.set(In::counter_set_id, 0x42);
  const auto number = [&](std::size_t size) {
    return asked_object(in.bytes().first(size)).value().number;
  };
  EXPECT_EQ(number(In::kSize), 0x42u);
  EXPECT_EQ(number(In::kSize - 1), 0u);
  EXPECT_EQ(number(kDevxHeader), 0u);
}

}  // namespace
}  // namespace softhca::uverbs

// The command table: the commands of the manual (PRM Table 127), the additional ones that the
// driver uses, and the refusal of commands that the device lacks.

#include "connectx/command/command_table.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

#include "connectx/fake_host.h"
#include "connectx/function/capabilities.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/hca.h"
#include "util/log.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;

struct Line {
  std::uint16_t opcode;
  std::string_view name;
  std::string_view section;
};

/// PRM Table 127, "Commands List Sorted by Opcode". It links QUERY_RQ to the section before its
/// own.
constexpr auto kTable127 = std::to_array<Line>({
    {0x100, "QUERY_HCA_CAP", "PRM 12.3.3"},
    {0x101, "QUERY_ADAPTER", "PRM 12.3.5"},
    {0x102, "INIT_HCA", "PRM 12.3.6"},
    {0x103, "TEARDOWN_HCA", "PRM 12.3.7"},
    {0x104, "ENABLE_HCA", "PRM 12.3.8"},
    {0x105, "DISABLE_HCA", "PRM 12.3.9"},
    {0x107, "QUERY_PAGES", "PRM 12.3.1"},
    {0x108, "MANAGE_PAGES", "PRM 12.3.2"},
    {0x109, "SET_HCA_CAP", "PRM 12.3.4"},
    {0x10a, "QUERY_ISSI", "PRM 12.3.10"},
    {0x10b, "SET_ISSI", "PRM 12.3.11"},
    {0x10d, "SET_DRIVER_VERSION", "PRM 12.3.12"},
    {0x200, "CREATE_MKEY", "PRM 12.5.1"},
    {0x201, "QUERY_MKEY", "PRM 12.5.2"},
    {0x202, "DESTROY_MKEY", "PRM 12.5.3"},
    {0x203, "QUERY_SPECIAL_CONTEXTS", "PRM 12.5.4"},
    {0x301, "CREATE_EQ", "PRM 12.6.1"},
    {0x302, "DESTROY_EQ", "PRM 12.6.2"},
    {0x303, "QUERY_EQ", "PRM 12.6.3"},
    {0x304, "GEN_EQE", "PRM 12.6.4"},
    {0x400, "CREATE_CQ", "PRM 12.7.1"},
    {0x401, "DESTROY_CQ", "PRM 12.7.2"},
    {0x402, "QUERY_CQ", "PRM 12.7.3"},
    {0x403, "MODIFY_CQ", "PRM 12.7.4"},
    {0x750, "QUERY_VPORT_STATE", "PRM 12.16.1"},
    {0x751, "MODIFY_VPORT_STATE", "PRM 12.16.2"},
    {0x754, "QUERY_NIC_VPORT_CONTEXT", "PRM 12.16.3"},
    {0x755, "MODIFY_NIC_VPORT_CONTEXT", "PRM 12.16.4"},
    {0x770, "QUERY_VPORT_COUNTER", "PRM 12.17.1"},
    {0x800, "ALLOC_PD", "PRM 12.3.13"},
    {0x801, "DEALLOC_PD", "PRM 12.3.14"},
    {0x802, "ALLOC_UAR", "PRM 12.3.15"},
    {0x803, "DEALLOC_UAR", "PRM 12.3.16"},
    {0x804, "CONFIG_INT_MODERATION", "PRM 12.3.17"},
    {0x805, "ACCESS_REG", "PRM 12.4.1"},
    {0x80d, "NOP", "PRM 12.18.1"},
    {0x816, "ALLOC_TRANSPORT_DOMAIN", "PRM 12.3.18"},
    {0x817, "DEALLOC_TRANSPORT_DOMAIN", "PRM 12.3.19"},
    {0x829, "SET_L2_TABLE_ENTRY", "PRM 12.15.1"},
    {0x82a, "QUERY_L2_TABLE_ENTRY", "PRM 12.15.2"},
    {0x82b, "DELETE_L2_TABLE_ENTRY", "PRM 12.15.3"},
    {0x900, "CREATE_TIR", "PRM 12.8.1"},
    {0x901, "MODIFY_TIR", "PRM 12.8.2"},
    {0x902, "DESTROY_TIR", "PRM 12.8.3"},
    {0x903, "QUERY_TIR", "PRM 12.8.4"},
    {0x904, "CREATE_SQ", "PRM 12.10.1"},
    {0x905, "MODIFY_SQ", "PRM 12.10.2"},
    {0x906, "DESTROY_SQ", "PRM 12.10.3"},
    {0x907, "QUERY_SQ", "PRM 12.10.4"},
    {0x908, "CREATE_RQ", "PRM 12.11.1"},
    {0x909, "MODIFY_RQ", "PRM 12.11.2"},
    {0x90a, "DESTROY_RQ", "PRM 12.11.3"},
    {0x90b, "QUERY_RQ", "PRM 12.11.4"},
    {0x90c, "CREATE_RMP", "PRM 12.13.1"},
    {0x90d, "MODIFY_RMP", "PRM 12.13.2"},
    {0x90e, "DESTROY_RMP", "PRM 12.13.3"},
    {0x90f, "QUERY_RMP", "PRM 12.13.4"},
    {0x912, "CREATE_TIS", "PRM 12.9.1"},
    {0x913, "MODIFY_TIS", "PRM 12.9.2"},
    {0x914, "DESTROY_TIS", "PRM 12.9.3"},
    {0x915, "QUERY_TIS", "PRM 12.9.4"},
    {0x916, "CREATE_RQT", "PRM 12.12.1"},
    {0x917, "MODIFY_RQT", "PRM 12.12.2"},
    {0x918, "DESTROY_RQT", "PRM 12.12.3"},
    {0x919, "QUERY_RQT", "PRM 12.12.4"},
    {0x92f, "SET_FLOW_TABLE_ROOT", "PRM 12.14.4"},
    {0x930, "CREATE_FLOW_TABLE", "PRM 12.14.1"},
    {0x931, "DESTROY_FLOW_TABLE", "PRM 12.14.3"},
    {0x932, "QUERY_FLOW_TABLE", "PRM 12.14.5"},
    {0x933, "CREATE_FLOW_GROUP", "PRM 12.14.6"},
    {0x934, "DESTROY_FLOW_GROUP", "PRM 12.14.7"},
    {0x935, "QUERY_FLOW_GROUP", "PRM 12.14.8"},
    {0x936, "SET_FLOW_TABLE_ENTRY", "PRM 12.14.9"},
    {0x937, "QUERY_FLOW_TABLE_ENTRY", "PRM 12.14.10"},
    {0x938, "DELETE_FLOW_TABLE_ENTRY", "PRM 12.14.11"},
    {0x939, "ALLOC_FLOW_COUNTER", "PRM 12.14.12"},
    {0x93a, "DEALLOC_FLOW_COUNTER", "PRM 12.14.13"},
    {0x93b, "QUERY_FLOW_COUNTER", "PRM 12.14.14"},
    {0x93c, "MODIFY_FLOW_TABLE", "PRM 12.14.2"},
});

TEST(CommandTable, NamesEachOfThe79CommandsOfTheManual) {
  static_assert(kTable127.size() == 79);
  for (const auto& line : kTable127) {
    const auto* spec = find_command(line.opcode);
    ASSERT_NE(spec, nullptr) << line.name;
    EXPECT_EQ(spec->name(), line.name);
    EXPECT_EQ(spec->section, line.section) << line.name;
  }
}

TEST(CommandTable, NamesEachCommandThatTheDriverKnows) {
  unsigned named = 0;
  for (unsigned opcode = 0; opcode <= 0xFFFF; ++opcode) {
    const auto known = !to_string(static_cast<s::command_opcode>(opcode)).empty();
    EXPECT_EQ(find_command(static_cast<std::uint16_t>(opcode)) != nullptr, known) << opcode;
    named += known;
  }
  EXPECT_EQ(named, command_table().size());
}

TEST(CommandTable, SaysInWordsWhatIsMissingAndOnlyThen) {
  for (const auto& spec : command_table()) {
    EXPECT_EQ(spec.words.empty(), spec.coverage == Coverage::kDone) << spec.name();
    const bool there = spec.coverage == Coverage::kDone || spec.coverage == Coverage::kPartly;
    EXPECT_EQ(spec.handler != nullptr, there) << spec.name();
    EXPECT_EQ(spec.states != 0, there) << spec.name();
  }
}

/// Collects the names of the nonzero capabilities of `Layout`.
template <class Layout>
void collect(std::span<const std::byte> image, std::map<std::string, bool>& set) {
  for (const auto& field : Layout::kFields) {
    const auto word = util::load_be32(image.data() + field.offset + (field.hi > 31 ? 4 : 0));
    const auto width = field.hi > 31 ? 32 : field.hi - field.lo + 1;
    const auto value = width == 32 ? word : word >> field.lo & ((1u << width) - 1);
    set[std::string(field.name)] |= value != 0;
  }
}

TEST(CommandTable, CapabilitiesThatItCallsZeroAreZero) {
  using Flow = s::flow_table_nic_cap;
  const Capabilities capabilities(Limits{});
  std::map<std::string, bool> set;
  collect<s::hca_cap>(capabilities.maximum(Capabilities::Type::GENERAL), set);
  collect<s::eth_offload_cap>(capabilities.maximum(Capabilities::Type::ETHERNET_OFFLOADS), set);
  const auto flow = capabilities.maximum(Capabilities::Type::FLOW_TABLE_NIC);
  collect<s::flow_table_properties>(flow.subspan(Flow::flow_table_properties_nic_receive.kOffset),
                                    set);
  const std::regex zero("(\\w+)(?: and (\\w+))? (?:is|are) 0");
  unsigned found = 0;
  for (const auto& spec : command_table()) {
    const std::string words(spec.words);
    std::smatch match;
    if (!std::regex_search(words, match, zero)) continue;
    for (std::size_t i = 1; i < match.size(); ++i) {
      if (!match[i].matched) continue;
      const auto at = set.find(match[i].str());
      ASSERT_NE(at, set.end()) << words;
      EXPECT_FALSE(at->second) << words;
      ++found;
    }
  }
  EXPECT_GT(found, 50u);
}

TEST(CommandTable, ACommandThatIsNotThereIsBadOpWithItsReasonInTheLog) {
  FakeHost host;
  host.initialize();
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { lines.emplace_back(text); });
  Input<s::nop_in> in(s::command_opcode::GET_DROPPED_PACKET_LOG);
  const auto reply = host.execute<s::nop_out>(in);
  util::set_log_sink({});
  EXPECT_EQ(reply.status(), Code::BAD_OP);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(),
            fmt::format("connectx0: GET_DROPPED_PACKET_LOG (op_mod 0x0) refused: BAD_OP (0x02), "
                        "syndrome {:#010x}: dropped packets are counted, not kept "
                        "(mlx5 driver interface)",
                        reply.syndrome()));
}

TEST(CommandTable, EachCommandThatIsNotThereIsRefusedInEveryState) {
  FakeHost fresh;
  fresh.start_queue();
  FakeHost initialized;
  initialized.initialize();
  for (const auto& spec : command_table()) {
    if (spec.handler != nullptr) continue;
    for (auto* host : {&fresh, &initialized}) {
      Input<s::nop_in> in(spec.opcode);
      const auto reply = host->execute<s::nop_out>(in);
      EXPECT_EQ(reply.status(), Code::BAD_OP) << spec.name();
      EXPECT_EQ(reply.syndrome(), spec.refusal().syndrome) << spec.name();
    }
  }
}

// PRM Table 128, BAD_OP: "Operation/command not supported or opcode modifier not supported".
TEST(CommandTable, AnOpModThatNoDocumentKnowsIsBadOp) {
  FakeHost initialized;
  initialized.initialize();
  FakeHost enabled;
  enabled.enable();
  FakeHost fresh;
  fresh.start_queue();
  for (const auto& spec : command_table()) {
    if (spec.handler == nullptr) continue;
    auto& host = spec.allowed_in(HcaState::kInitialized) ? initialized
                 : spec.allowed_in(HcaState::kEnabled)   ? enabled
                                                         : fresh;
    std::vector<std::byte> in(spec.input);
    const util::MutableView<s::command_input_header> header(in);
    header.set(s::command_input_header::opcode, static_cast<std::uint16_t>(spec.opcode));
    header.set(s::command_input_header::op_mod, 0xFFFF);
    EXPECT_EQ(host.execute(in, spec.min_output + 64).status(), Code::BAD_OP) << spec.name();
  }
}

}  // namespace
}  // namespace softhca::connectx

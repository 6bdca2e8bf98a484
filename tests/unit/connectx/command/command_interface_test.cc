// The command interface (PRM 7.14): slots, mailboxes, delivery status, completion events.

#include "connectx/command/command_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "connectx/fake_host.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/resources.h"
#include "util/log.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Entry = FakeHost::Entry;
using Block = FakeHost::Block;
using Opcode = FakeHost::Opcode;
using Delivery = s::delivery_status;
using Code = s::command_status;

class CommandInterfaceTest : public testing::Test {
 protected:
  /// Prepares slot 0 with a command whose input and output need mailboxes.
  void prepare_query_cap() {
    host.enable();
    Input<s::query_hca_cap_in> in(Opcode::QUERY_HCA_CAP, 1);
    out_blocks = host.prepare(0, in.bytes(), kCapSize);
  }
  void prepare_give(std::uint32_t pages) {
    host.enable();
    Input<s::manage_pages_in> in(Opcode::MANAGE_PAGES, 1, 8 * pages);
    in->set(s::manage_pages_in::input_num_entries, pages);
    for (std::uint32_t i = 0; i < pages; ++i) in.set_address(i, 0x10000 + 4096 * i);
    out_blocks = host.prepare(0, in.bytes(), 16);
  }
  std::uint64_t input_pointer() {
    return host.slot(0).get(Entry::input_mailbox_pointer) << Entry::input_mailbox_pointer.kLo;
  }
  void set_input_pointer(std::uint64_t at) {
    host.slot(0).set(Entry::input_mailbox_pointer, at >> Entry::input_mailbox_pointer.kLo);
  }
  Reply ring(std::size_t out_size = 16) {
    host.ring_commands(1);
    host.run();
    return host.collect(0, out_size, out_blocks);
  }

  static constexpr std::size_t kCapSize = s::query_hca_cap_out::kSize;
  FakeHost host;
  std::vector<std::uint64_t> out_blocks;
};

TEST_F(CommandInterfaceTest, CarriesOutACommandThatFitsInTheEntry) {
  host.start_queue();
  Input<s::enable_hca_in> in(Opcode::ENABLE_HCA);
  const auto reply = host.execute<s::enable_hca_out>(in);
  EXPECT_TRUE(reply.completed);
  EXPECT_EQ(reply.delivery, Delivery::OK);
  EXPECT_EQ(reply.status(), Code::OK);
}

TEST_F(CommandInterfaceTest, DoesNothingDuringTheRegisterAccess) {
  prepare_query_cap();
  host.ring_commands(1);
  EXPECT_EQ(host.slot(0).get(Entry::ownership), 1u);
  host.run();
  EXPECT_EQ(host.slot(0).get(Entry::ownership), 0u);
}

TEST_F(CommandInterfaceTest, IgnoresADoorbellForASlotThatSoftwareOwns) {
  prepare_query_cap();
  host.slot(0).set(Entry::ownership, 0);
  const auto before = std::vector(host.slot(0).bytes().begin(), host.slot(0).bytes().end());
  host.ring_commands(1);
  host.run();
  EXPECT_TRUE(std::ranges::equal(host.slot(0).bytes(), before));
}

TEST_F(CommandInterfaceTest, ServesAllSlotsOfOneDoorbell) {
  host.enable();
  Input<s::query_issi_in> in(Opcode::QUERY_ISSI);
  for (unsigned i = 0; i < 32; ++i) host.prepare(i, in.bytes(), s::query_issi_out::kSize);
  host.ring_commands(0xFFFF'FFFF);
  host.run();
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(host.slot(i).get(Entry::ownership), 0u) << i;
}

TEST_F(CommandInterfaceTest, ServesSlotsInTheOrderOfTheirDoorbells) {
  host.initialize();
  Input<s::alloc_pd_in> in(Opcode::ALLOC_PD);
  for (const auto slot : {5u, 2u}) host.prepare(slot, in.bytes(), 16);
  host.ring_commands(1u << 5);
  host.ring_commands(1u << 2);
  host.ring_commands(1u << 5);  // rung twice, executed once
  host.run();
  const auto pd = [&](unsigned slot) {
    return host.collect(slot, 16, {}).as<s::alloc_pd_out>().get(s::alloc_pd_out::pd);
  };
  EXPECT_EQ(pd(5) + 1, pd(2));
}

TEST_F(CommandInterfaceTest, TakesTheInputFromAChainOfBlocks) {
  prepare_give(1000);
  EXPECT_TRUE(ring().ok());
}

TEST_F(CommandInterfaceTest, IgnoresWhatIsBehindTheMessageInALongerChain) {
  prepare_give(2);
  // A reused chain: the last block still has a next pointer, which is garbage.
  host.block(input_pointer()).set(Block::next_pointer, 0xDEAD);
  EXPECT_TRUE(ring().ok());
}

TEST_F(CommandInterfaceTest, TakesMegabytesOfInput) {
  host.initialize();
  // 3 MiB, as for a memory key of 1.5 GiB. The device refuses the key only after the whole input
  // has arrived.
  std::vector<std::byte> in(3 << 20);
  const util::MutableView<s::command_input_header> header(in);
  header.set(s::command_input_header::opcode, static_cast<std::uint16_t>(Opcode::CREATE_MKEY));
  const auto reply = host.execute(in, 16);
  EXPECT_EQ(reply.delivery, Delivery::OK);
  EXPECT_EQ(reply.status(), Code::BAD_RESOURCE);
}

TEST_F(CommandInterfaceTest, WritesTheOutputToTheEntryAndItsChain) {
  prepare_query_cap();
  const auto reply = ring(kCapSize);
  ASSERT_TRUE(reply.ok());
  const auto cap = reply.as<s::query_hca_cap_out>().get(s::query_hca_cap_out::capability);
  EXPECT_EQ(cap[0x4F], std::byte{0}) << "reserved bytes are zero, whatever was in the block";
  EXPECT_NE(std::ranges::count(cap, std::byte{0}), std::ptrdiff_t{4096});
}

TEST_F(CommandInterfaceTest, WritesNothingBehindTheOutputLength) {
  prepare_query_cap();
  (void)ring(kCapSize);
  // The output of QUERY_HCA_CAP, 16 + 8 * 512 bytes, fills its blocks exactly, so use a command
  // with a half-used last block.
  FakeHost other;
  other.enable();
  Input<s::query_issi_in> in(Opcode::QUERY_ISSI);
  const auto blocks = other.prepare(0, in.bytes(), s::query_issi_out::kSize);
  other.ring_commands(1);
  other.run();
  const auto data = other.block(blocks[0]).get(Block::mailbox_data);
  const auto behind = data.subspan(s::query_issi_out::kSize - 16);
  EXPECT_TRUE(std::ranges::all_of(behind, [](std::byte b) { return b == std::byte{0xEE}; }));
}

// PRM 7.14.1.1.1: "bitwise XOR of all bytes of the page, including the reserved fields and the
// signature fields should result in 0xFF."
TEST_F(CommandInterfaceTest, SignsEntryAndOutputBlocks) {
  prepare_query_cap();
  (void)ring(kCapSize);
  const auto sum = [](std::span<const std::byte> bytes) {
    auto x = std::byte{0};
    for (const auto b : bytes) x ^= b;
    return x;
  };
  EXPECT_EQ(sum(host.slot(0).bytes()), std::byte{0xFF});
  ASSERT_EQ(out_blocks.size(), 8u);
  for (const auto block : out_blocks) {
    EXPECT_EQ(sum(host.block(block).bytes()), std::byte{0xFF});
    const auto control = std::span<const std::byte>(host.block(block).bytes()).subspan(0x200);
    EXPECT_EQ(sum(control.first(control.size() - 1)), std::byte{0xFF});
  }
}

TEST_F(CommandInterfaceTest, DoesNotCheckTheSignaturesOfItsInput) {
  prepare_give(100);
  host.slot(0).set(Entry::signature, 0x77);
  EXPECT_TRUE(ring().ok());
}

TEST_F(CommandInterfaceTest, AcceptsTokenZero) {
  host.enable();
  Input<s::query_hca_cap_in> in(Opcode::QUERY_HCA_CAP, 1);
  out_blocks = host.prepare(0, in.bytes(), kCapSize, 0);
  EXPECT_TRUE(ring(kCapSize).ok());
}

// Each delivery status of PRM Table 96 ---------------------------------------------------------

TEST_F(CommandInterfaceTest, WrongTypeIsABadCommandDescriptor) {
  prepare_query_cap();
  host.slot(0).set(Entry::type, 6);
  EXPECT_EQ(ring().delivery, Delivery::BAD_COMMAND_DESCRIPTOR);
}

TEST_F(CommandInterfaceTest, WrongTokenInAnInputBlockIsATokenError) {
  prepare_give(100);
  host.block(input_pointer()).set(Block::token, 0x11);
  EXPECT_EQ(ring().delivery, Delivery::TOKEN_ERR);
}

TEST_F(CommandInterfaceTest, WrongTokenInAnOutputBlockIsATokenError) {
  prepare_query_cap();
  host.block(out_blocks[3]).set(Block::token, 0x11);
  EXPECT_EQ(ring().delivery, Delivery::TOKEN_ERR);
}

TEST_F(CommandInterfaceTest, WrongNumberInABlockIsABadBlockNumber) {
  prepare_query_cap();
  host.block(out_blocks[2]).set(Block::block_number, 7);
  EXPECT_EQ(ring().delivery, Delivery::BAD_BLOCK_NUMBER);
}

TEST_F(CommandInterfaceTest, AnEndlessInputChainIsABadBlockNumber) {
  prepare_give(1000);
  const auto first = input_pointer();
  host.block(first).set(Block::next_pointer, first >> Block::next_pointer.kLo);
  EXPECT_EQ(ring().delivery, Delivery::BAD_BLOCK_NUMBER);
}

TEST_F(CommandInterfaceTest, MissingInputMailboxIsABadInputPointer) {
  prepare_give(100);
  set_input_pointer(0);
  EXPECT_EQ(ring().delivery, Delivery::BAD_INPUT_POINTER);
}

TEST_F(CommandInterfaceTest, InputMailboxOutsideOfMemoryIsABadInputPointer) {
  prepare_give(100);
  set_input_pointer(0xFFFF'FFFF'FFFF'FE00);
  EXPECT_EQ(ring().delivery, Delivery::BAD_INPUT_POINTER);
}

TEST_F(CommandInterfaceTest, InputChainThatEndsEarlyIsABadInputPointer) {
  prepare_give(1000);
  host.block(input_pointer()).set(Block::next_pointer, 0);
  EXPECT_EQ(ring().delivery, Delivery::BAD_INPUT_POINTER);
}

TEST_F(CommandInterfaceTest, UnalignedInputMailboxIsABadInputPointer) {
  prepare_give(100);
  host.slot(0).set(Entry::input_mailbox_pointer_low, 8);
  EXPECT_EQ(ring().delivery, Delivery::BAD_INPUT_POINTER);
}

TEST_F(CommandInterfaceTest, UnalignedOutputMailboxIsABadOutputPointer) {
  prepare_query_cap();
  host.slot(0).set(Entry::output_mailbox_pointer_low, 8);
  EXPECT_EQ(ring().delivery, Delivery::BAD_OUTPUT_POINTER);
}

TEST_F(CommandInterfaceTest, MissingOutputMailboxIsABadOutputPointer) {
  prepare_query_cap();
  host.slot(0).set(Entry::output_mailbox_pointer, 0);
  EXPECT_EQ(ring().delivery, Delivery::BAD_OUTPUT_POINTER);
}

TEST_F(CommandInterfaceTest, ACommandWhoseAnswerCannotBeDeliveredIsNotCarriedOut) {
  host.initialize();
  Input<s::alloc_pd_in> in(Opcode::ALLOC_PD);
  host.prepare(0, in.bytes(), 600);
  host.slot(0).set(Entry::output_mailbox_pointer, 0);
  EXPECT_EQ(ring().delivery, Delivery::BAD_OUTPUT_POINTER);
  EXPECT_EQ(host.allocate_pd(), 1u);
}

TEST_F(CommandInterfaceTest, InputShorterThanAHeaderIsAnInputLengthError) {
  prepare_query_cap();
  host.slot(0).set(Entry::input_length, 7);
  EXPECT_EQ(ring().delivery, Delivery::INPUT_LEN_ERR);
}

TEST_F(CommandInterfaceTest, EightBytesOfInputAreDelivered) {
  host.enable();
  Input<s::nop_in> in(Opcode::NOP);
  in.bytes().resize(8);
  EXPECT_EQ(host.execute(in.bytes(), 16).delivery, Delivery::OK);
}

TEST_F(CommandInterfaceTest, InputBeyondEveryBoundIsAnInputLengthError) {
  prepare_query_cap();
  host.slot(0).set(Entry::input_length, 0xFFFF'FFFF);
  EXPECT_EQ(ring().delivery, Delivery::INPUT_LEN_ERR);
}

TEST_F(CommandInterfaceTest, OutputLengthOutOfBoundsIsAnOutputLengthError) {
  for (const auto length : {0u, 7u, (512u << 10) + 1, 32u << 20, 0xFFFF'FFFFu}) {
    prepare_query_cap();
    host.slot(0).set(Entry::output_length, length);
    EXPECT_EQ(ring().delivery, Delivery::OUTPUT_LEN_ERR) << length;
  }
}

// Output status ----------------------------------------------------------------------------------

TEST_F(CommandInterfaceTest, UnknownOpcodeIsRefusedWithASyndrome) {
  host.initialize();
  Input<s::nop_in> in(static_cast<Opcode>(0xBAD));
  const auto reply = host.execute<s::nop_out>(in);
  EXPECT_EQ(reply.delivery, Delivery::OK);
  EXPECT_EQ(reply.status(), Code::BAD_OP);
  EXPECT_NE(reply.syndrome(), 0u);
}

TEST_F(CommandInterfaceTest, InputShorterThanTheCommandIsABadInputLength) {
  host.enable();
  Input<s::set_driver_version_in> in(Opcode::SET_DRIVER_VERSION);
  EXPECT_TRUE(host.execute(in.bytes(), 16).ok());
  in.bytes().pop_back();
  EXPECT_EQ(host.execute(in.bytes(), 16).status(), Code::BAD_INPUT_LEN);
}

TEST_F(CommandInterfaceTest, OutputShorterThanTheCommandsIsABadOutputLength) {
  host.enable();
  Input<s::query_adapter_in> in(Opcode::QUERY_ADAPTER);
  constexpr auto kSize = s::query_adapter_out::kSize;
  EXPECT_TRUE(host.execute(in.bytes(), kSize).ok());
  EXPECT_EQ(host.execute(in.bytes(), kSize - 1).status(), Code::BAD_OUTPUT_LEN);
}

TEST_F(CommandInterfaceTest, ARefusalIsLoggedInWordsWithItsSection) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { lines.emplace_back(text); });
  host.initialize();
  Input<s::dealloc_pd_in> in(Opcode::DEALLOC_PD);
  in->set(s::dealloc_pd_in::pd, 77);
  const auto reply = host.execute<s::dealloc_pd_out>(in);
  util::set_log_sink({});
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(),
            fmt::format("connectx0: DEALLOC_PD (op_mod 0x0) refused: BAD_RESOURCE (0x05), syndrome "
                        "{:#010x}: this number is not in use (PRM 12.3.14)",
                        reply.syndrome()));
}

TEST_F(CommandInterfaceTest, AGuestCannotFloodTheLog) {
  unsigned lines = 0;
  util::set_log_sink([&](util::LogLevel, std::string_view) { ++lines; });
  host.initialize();
  Input<s::nop_in> in(static_cast<Opcode>(0xBAD));
  for (int i = 0; i < 1000; ++i) (void)host.execute<s::nop_out>(in);
  util::set_log_sink({});
  EXPECT_LE(lines, 40u);
}

TEST_F(CommandInterfaceTest, AGuestCannotFloodTheLogWithWhatItIs) {
  host.initialize();
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { lines.emplace_back(text); });
  Input<s::set_driver_version_in> in(Opcode::SET_DRIVER_VERSION);
  for (int i = 0; i < 1000; ++i) (void)host.execute<s::set_driver_version_out>(in);
  for (int i = 0; i < 1000; ++i) {
    host.start_queue();
    host.run();
  }
  util::set_log_sink({});
  EXPECT_LE(lines.size(), 40u);
  for (const auto& line : lines) EXPECT_THAT(line, testing::StartsWith("connectx0: "));
}

// A command with a large output costs at least as much as one with a large input.
TEST_F(CommandInterfaceTest, OneTurnExecutesCommandsOfABoundedSize) {
  host.initialize();
  constexpr std::size_t kLarge = 5 << 15;
  std::vector<std::byte> nop(8);
  const util::MutableView<s::command_input_header> header(nop);
  header.set(s::command_input_header::opcode, static_cast<std::uint16_t>(Opcode::NOP));
  auto large_input = nop;
  large_input.resize(kLarge);
  const auto executed_in_a_turn = [&](std::span<const std::byte> in, std::size_t out_size) {
    const auto mark = host.allocate(0);
    for (unsigned slot = 0; slot < 3; ++slot) (void)host.prepare(slot, in, out_size);
    host.ring_commands(0x7);
    EXPECT_LE(host.device.run(host.now), host.now) << "there is more to do";
    unsigned done = 0;
    for (unsigned slot = 0; slot < 3; ++slot) {
      done += host.slot(slot).get(FakeHost::Entry::ownership) == 0;
    }
    host.run();
    host.free_from(mark);
    return done;
  };
  EXPECT_EQ(executed_in_a_turn(large_input, 8), 2u);
  EXPECT_EQ(executed_in_a_turn(nop, kLarge), 1u);
}

TEST_F(CommandInterfaceTest, CountsCommandsByOpcode) {
  host.initialize();
  for (int i = 0; i < 3; ++i) (void)host.allocate_pd();
  const auto table = command_table();
  const auto at = find_command(static_cast<std::uint16_t>(Opcode::ALLOC_PD)) - table.data();
  const auto& counters = host.device.commands().counters()[static_cast<std::size_t>(at)];
  EXPECT_EQ(counters.executed, 3u);
  EXPECT_EQ(counters.refused, 0u);
}

// Completion events
// --------------------------------------------------------------------------------

constexpr std::uint64_t kCommandEvents = 1ull << 0x0A;

std::uint32_t event_vector(FakeHost& host, std::uint64_t eq, unsigned index) {
  const util::View<s::eqe> eqe(std::span(host.at(eq + 64 * index), 64));
  EXPECT_EQ(eqe.get(s::eqe::event_type), 0x0Au);
  EXPECT_EQ(eqe.get(s::eqe::owner), 0u);
  return util::load_be32(eqe.get(s::eqe::event_data).data());
}

TEST_F(CommandInterfaceTest, CompletionEventNamesTheSlot) {
  host.initialize();
  const auto eqn = host.create_eq(8, kCommandEvents, 3);
  const auto eq = host.last_buffer;
  host.write32(host.uar * 4096 + 0x40, eqn << 24);
  Input<s::query_issi_in> in(Opcode::QUERY_ISSI);
  host.prepare(9, in.bytes(), s::query_issi_out::kSize);
  host.ring_commands(1u << 9);
  host.run();
  EXPECT_EQ(event_vector(host, eq, 0), 1u << 9);
  EXPECT_EQ(host.interrupts(3), 1u);
}

// PRM 12.18.1.
TEST_F(CommandInterfaceTest, NopCompletesAndRaisesOnlyTheCompletionEvent) {
  host.initialize();
  // All event types except port changes and page requests, which occur for other reasons.
  const auto eqn = host.create_eq(8, ~(1ull << 0x09 | 1ull << 0x0B), 3);
  const auto eq = host.last_buffer;
  host.write32(host.uar * 4096 + 0x40, eqn << 24);
  Input<s::nop_in> in(Opcode::NOP);
  EXPECT_TRUE(host.execute<s::nop_out>(in).ok());
  EXPECT_EQ(event_vector(host, eq, 0), 1u);
  EXPECT_EQ(host.at(eq + 64)[63], std::byte{1}) << "software still owns entry 1";
  EXPECT_EQ(host.interrupts(3), 1u);
}

TEST_F(CommandInterfaceTest, NoEventReportsTheEndOfTheCommandThatCreatedItsEq) {
  host.initialize();
  const auto eqn = host.create_eq(8, kCommandEvents, 3);
  EXPECT_EQ(host.at(host.last_buffer)[63], std::byte{1}) << "software still owns entry 0";
  host.write32(host.uar * 4096 + 0x40, eqn << 24);
  EXPECT_EQ(host.interrupts(3), 0u);
}

TEST_F(CommandInterfaceTest, AfterItsEqIsGoneCommandsCompleteByTheOwnershipBitAlone) {
  host.initialize();
  const auto eqn = host.create_eq(8, kCommandEvents, 3);
  Input<s::destroy_eq_in> in(Opcode::DESTROY_EQ);
  in->set(s::destroy_eq_in::eq_number, eqn);
  EXPECT_TRUE(host.execute<s::destroy_eq_out>(in).ok());
  (void)host.allocate_pd();
  EXPECT_EQ(host.interrupts(3), 0u);
}

TEST_F(CommandInterfaceTest, EveryOpcodeOfTheTableSurvivesZeroInput) {
  for (const auto& spec : command_table()) {
    if (spec.handler == nullptr) continue;  // command_table_test.cc
    FakeHost fresh;
    fresh.initialize();
    std::vector<std::byte> in(spec.min_input + 64);
    const util::MutableView<s::command_input_header> header(in);
    header.set(s::command_input_header::opcode, static_cast<std::uint16_t>(spec.opcode));
    const auto reply = fresh.execute(in, spec.min_output + 64);
    EXPECT_TRUE(reply.completed) << spec.name();
    EXPECT_EQ(reply.delivery, Delivery::OK) << spec.name();
  }
}

TEST_F(CommandInterfaceTest, EveryOpcodeOfTheTableSurvivesInputOfAllOnes) {
  for (const auto& spec : command_table()) {
    if (spec.handler == nullptr) continue;  // command_table_test.cc
    FakeHost fresh;
    fresh.initialize();
    std::vector<std::byte> in(spec.min_input + 64, std::byte{0xFF});
    const util::MutableView<s::command_input_header> header(in);
    header.set(s::command_input_header::opcode, static_cast<std::uint16_t>(spec.opcode));
    for (const std::uint16_t op_mod : {0, 1, 0xFFFF}) {
      header.set(s::command_input_header::op_mod, op_mod);
      const auto reply = fresh.execute(in, spec.min_output + 64);
      EXPECT_TRUE(reply.completed) << spec.name();
    }
  }
}

}  // namespace
}  // namespace softhca::connectx

// Inputs that the device does not check: overlapping tables, the port of a QP, and in_modifiers
// that the document shows as constants (docs/jingzhao.md, "More decisions").
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/raw_host.h"
#include "jingzhao/spoiler.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::cq_context;
using spec::jingzhao::eq_context;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;

/// EQ 2 and CQ 1, whose contexts have the same address if their tables begin at the same address.
/// Only one entry of each table is on chip.
class JingzhaoOverlap : public testing::Test {
 protected:
  static constexpr std::uint32_t kEqn = 2, kCqn = 1;
  static constexpr std::size_t kRingOfEq = 2048, kRingOfCq = 3072, kEntry = 32;
  static_assert(kEqn * limits::kEqcSize == kCqn * limits::kCqcSize);

  void init(std::uint64_t cqc_base) {
    for (const auto table : {RawHost::kCqc, RawHost::kEqc}) {
      ASSERT_EQ(h.map(1, table, h.bus(table), RawHost::kTablePages), OK);
    }
    h.put_init();
    h.put64(0x10, cqc_base | 6);
    ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  }
  /// Installs the context of the EQ, then that of the CQ. Another context then evicts each.
  void install() {
    util::Struct<eq_context> eq;
    eq.set(eq_context::start, h.out.iova + kRingOfEq);
    put_and_run(command_opcode::SW2HW_EQ, kEqn, eq.bytes());
    put_and_run(command_opcode::SW2HW_EQ, 0, util::Struct<eq_context>().bytes());
    util::Struct<cq_context> cq;
    cq.set(cq_context::start, h.out.iova + kRingOfCq);
    put_and_run(command_opcode::SW2HW_CQ, kCqn, cq.bytes());
    put_and_run(command_opcode::SW2HW_CQ, 3, util::Struct<cq_context>().bytes());
  }
  void put_and_run(command_opcode op, std::uint32_t number, std::span<const std::byte> context) {
    h.put(context);
    ASSERT_EQ(h.with_mailbox(op, number), OK);
  }
  void make_event() {
    constexpr std::uint64_t kCmd = 1u << 10;
    for (const auto ring : {kRingOfEq, kRingOfCq}) {
      std::ranges::fill(h.out.bytes.subspan(ring, kEntry), std::byte{0xFF});
    }
    ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = kEqn, .in_param = kCmd}), OK);
    ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
  }
  bool has_event(std::size_t ring) { return h.out.bytes[ring + kEntry - 1] == std::byte{0}; }

  RawHost h{{.icm_cache = 1}};
};

TEST_F(JingzhaoOverlap, ContextsOfOtherTablesStayAsTheyAre) {
  init(RawHost::kCqc);
  install();
  make_event();
  EXPECT_TRUE(has_event(kRingOfEq));
  EXPECT_FALSE(has_event(kRingOfCq));
}

// The document does not say that tables must not overlap, nor what happens if they do.
// docs/jingzhao.md, "INIT_HCA": the device does not compare them, so contexts overwrite each other.
TEST_F(JingzhaoOverlap, TheContextOfACqThatIsWhereThatOfAnEqWasCounts) {
  init(RawHost::kEqc);
  install();
  make_event();
  EXPECT_FALSE(has_event(kRingOfEq));
  EXPECT_TRUE(has_event(kRingOfCq)) << "at the address in the context of the CQ";
}

// QUERY_DEV_LIM reports one port. The document does not call any other port number an error.
// docs/jingzhao.md, "MAP_EQ": `port` of a QP is ignored.
TEST(JingzhaoIgnoredPort, OfAQueuePairMayHaveAnyNumber) {
  RawHost h;
  h.init();
  h.clear_mailbox();
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  for (std::uint32_t port = 0; port <= qp_context::port.kMax; ++port) {
    const auto qpn = 5 + port;
    util::Struct<qp_context> context;
    context.set(qp_context::local_qpn, qpn);
    context.set(qp_context::port, port);
    context.set(qp_context::mtu, 3);
    context.set(qp_context::rnr_timer, 5);
    const auto go = [&](command_opcode op, qp_state state) {
      context.set(qp_context::state, static_cast<std::uint32_t>(state));
      h.put(context.bytes());
      return h.with_mailbox(op, qpn);
    };
    EXPECT_EQ(go(command_opcode::RST2INIT_QPEE, qp_state::INIT), OK) << port;
    EXPECT_EQ(go(command_opcode::INIT2INIT_QPEE, qp_state::INIT), OK) << port;
    EXPECT_EQ(go(command_opcode::INIT2RTR_QPEE, qp_state::RTR), OK) << port;
    EXPECT_EQ(go(command_opcode::RTR2RTS_QPEE, qp_state::RTS), OK) << port;
    EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_QP, qpn), OK);
    EXPECT_EQ(util::View<qp_context>(h.out.bytes).get(qp_context::port), port);
  }
}

TEST(JingzhaoIgnoredPort, OfAQueuePairChangesNoPath) {
  World world({.make_host = Spoiler::make()});
  std::uint32_t port = 0;
  Spoiler::of(world.a()).spoil = [&port](command_opcode op, std::span<std::byte> mailbox) {
    if (op != command_opcode::RST2INIT_QPEE) return;
    util::MutableView<qp_context>(mailbox.first(qp_context::kSize)).set(qp_context::port, port);
  };
  world.open();
  for (; port <= qp_context::port.kMax; ++port) {
    Side a(world.a()), b(world.b());
    connect(a, b);
    fill(a.bytes(0, 100), port + 1);
    const auto piece = a.piece(0, 100);
    ASSERT_EQ(a.qp->post_send({.id = port,
                               .opcode = driver::SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    expect_success(wait(world, *a.send_cq), port, CompletionOpcode::kRdmaWrite);
    EXPECT_TRUE(same(a.bytes(0, 100), b.bytes(0, 100))) << port;
  }
}

// The document's tables print 0 for these commands, 1Fh for NOP and nothing for MAD_IFC. They do
// not say what another value does. docs/jingzhao.md, "in_modifier" and "MAP_EQ": it is ignored.
TEST(JingzhaoIgnoredInModifier, OfCommandsWithAConstantMayBeAnything) {
  for (const std::uint32_t modifier : {0u, 1u, 2u, 0x1Fu, 55u, UINT32_MAX}) {
    SCOPED_TRACE(modifier);
    RawHost h({.board_id = 0x1122334455667788});
    EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_DEV_LIM, modifier), OK);
    EXPECT_EQ(h.get32(0x0c), 0x0E0D050Eu);
    EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_ADAPTER, modifier), OK);
    EXPECT_EQ(h.get32(0x18), 0x11223344u);
    EXPECT_EQ(h.command(command_opcode::MAD_IFC,
                        {.in_modifier = modifier, .op_modifier = 1, .out_param = h.out.iova}),
              OK);
    EXPECT_EQ(h.get32(0), 0x00010203u);
    EXPECT_EQ(h.command(command_opcode::NOP, {.in_modifier = modifier}), OK);
    h.put_init();
    EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, modifier), OK);
    EXPECT_TRUE(h.device.initialized());
    EXPECT_EQ(h.command(command_opcode::CLOSE_HCA, {.in_modifier = modifier}), OK);
    EXPECT_FALSE(h.device.initialized());
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test

// The HCR and a function's commands, as software that writes registers sees them (JingZhao 3.1.1,
// 3.2.1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "jingzhao/command_table.h"
#include "jingzhao/fields.h"
#include "jingzhao/raw_host.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;

TEST(JingzhaoHcr, NopFallsBackToFreeWithStatusOk) {
  RawHost h;
  h.start(0x031, {.in_modifier = 0x1F});
  EXPECT_EQ(h.read(RawHost::kHcr + 0x18) >> 23 & 1, 1u) << "busy until it is executed";
  EXPECT_EQ(h.finish(), OK);
}

TEST(JingzhaoHcr, AnUnknownOpcodeIsBadOp) {
  RawHost h;
  h.start(0xFFF, {});
  EXPECT_EQ(h.finish(), BAD_OP);
}

TEST(JingzhaoHcr, IsNotWritableWhileItIsBusy) {
  RawHost h;
  h.start(0x031, {.in_modifier = 0x1F});
  h.write(RawHost::kHcr + 0x08, 77);
  h.write(RawHost::kHcr + 0x18, 1u << 23 | 0xFFF);
  EXPECT_EQ(h.read(RawHost::kHcr + 0x08), 0x1Fu);
  EXPECT_EQ(h.finish(), OK);
  h.write(RawHost::kHcr + 0x08, 77);
  EXPECT_EQ(h.read(RawHost::kHcr + 0x08), 77u);
}

TEST(JingzhaoHcr, StatusIsTheDevicesAlone) {
  RawHost h;
  h.write(RawHost::kHcr + 0x18, 0xFF000000u);
  EXPECT_EQ(h.read(RawHost::kHcr + 0x18) >> 24, 0u);
}

TEST(JingzhaoHcr, AStoreOf64BitsIsTwoStoresAndSwapsNothing) {
  RawHost h;
  h.write64(RawHost::kHcr + 0x08, 0x1111111122222222, 0);
  EXPECT_EQ(h.read(RawHost::kHcr + 0x08), 0x22222222u);
  EXPECT_EQ(h.read(RawHost::kHcr + 0x0c), 0x11111111u);
}

TEST(JingzhaoHcr, AResetDuringACommandEndsItAndForgetsEverything) {
  RawHost h;
  h.init();
  h.start(0x031, {.in_modifier = 0x1F});
  h.write(RawHost::kReset, 1);
  EXPECT_EQ(h.read(RawHost::kReset), 1u) << "the reset runs";
  EXPECT_EQ(h.finish(), BAD_SYS_STATE);
  EXPECT_EQ(h.read(RawHost::kReset), 0u);
  h.put_init();
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK) << "it is not initialised any more";
}

// "E": the device also reports token and status as an event.
TEST(JingzhaoHcr, CompletionIsAnEventIfEIsSet) {
  using spec::jingzhao::cmd_eqe;
  using spec::jingzhao::eq_context;
  RawHost h;
  h.init();
  util::Struct<eq_context> eq;
  constexpr std::size_t kRing = 2048, kEntries = 4;
  eq.set(eq_context::start, h.out.iova + kRing);
  eq.set(eq_context::logsize, 2);
  h.put(eq.bytes());
  const auto ring = h.out.bytes.subspan(kRing, kEntries * cmd_eqe::kSize);
  std::ranges::fill(ring, std::byte{0xFF});  // the device owns all entries
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
  ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_param = 1u << 10}), OK);
  ASSERT_EQ(h.command(command_opcode::NOP, {}), OK);
  EXPECT_EQ(ring[31], std::byte{0xFF}) << "no event was requested";
  ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
  ASSERT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 5, .e = true}), BAD_PARAM);
  for (const auto& [at, status] : {std::pair{0u, OK}, {32u, BAD_PARAM}}) {
    const util::View<cmd_eqe> event(ring.subspan(at, cmd_eqe::kSize));
    EXPECT_EQ(event.get(cmd_eqe::token), 0x1234u);
    EXPECT_EQ(hcr_status(event.get(cmd_eqe::status)), status);
    EXPECT_EQ(ring[at + 1], std::byte{0x0a}) << "its type, CMD";
    EXPECT_EQ(ring[at + 31], std::byte{0}) << "software owns it";
  }
}

TEST(JingzhaoHcr, TheNumberOfAQueuePairIsTakenAsItStands) {
  RawHost h;
  h.init();
  const auto above = [](unsigned bit) { return 1u << bit | 5; };
  // Bits above the QPN would make the number ambiguous.
  EXPECT_EQ(h.command(command_opcode::ERR2RST_QPEE, {.in_modifier = 5, .op_modifier = 3}), OK);
  for (const unsigned bit : {24u, 31u}) {
    EXPECT_EQ(
        h.command(command_opcode::ERR2RST_QPEE, {.in_modifier = above(bit), .op_modifier = 3}),
        BAD_PARAM);
    EXPECT_EQ(h.command(command_opcode::CONF_SPECIAL_QP, {.in_modifier = above(bit)}), BAD_PARAM);
  }
  for (std::uint8_t kind = 0; kind != 5; ++kind) {
    EXPECT_EQ(h.command(command_opcode::CONF_SPECIAL_QP, {.in_modifier = 5, .op_modifier = kind}),
              kind < 4 ? OK : BAD_PARAM)
        << unsigned{kind};
  }
}

// Each command's tables list its op_modifier values; the device refuses others.
TEST(JingzhaoHcr, AnOpModifierThatACommandDoesNotHaveIsBadParam) {
  const std::map<Opcode, std::set<unsigned>> others{
      {Opcode::MAP_ICM, {1, 2}},      {Opcode::UNMAP_ICM, {1, 2}},
      {Opcode::ERR2RST_QPEE, {0, 3}}, {Opcode::CONF_SPECIAL_QP, {0, 1, 2, 3}},
      {Opcode::RESIZE_CQ, {0, 1}},  // the author's driver uses 1
  };
  for (const auto& info : command_table()) {
    if (info.op == Opcode::MAD_IFC) continue;  // its op_modifier is a set of flags
    const auto found = others.find(info.op);
    for (unsigned modifier = 0; modifier != 256; ++modifier) {
      const bool has = found == others.end() ? modifier == 0 : found->second.contains(modifier);
      EXPECT_EQ(modifier < 32 && (info.op_modifiers >> modifier & 1) != 0, has)
          << info.name << ' ' << modifier;
    }
  }
  RawHost h;
  EXPECT_EQ(h.command(command_opcode::NOP, {.in_modifier = 0x1F, .op_modifier = 1}), BAD_PARAM);
  EXPECT_EQ(h.command(command_opcode::NOP, {.in_modifier = 0x1F, .op_modifier = 32}), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_DEV_LIM, 0, 1), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::QUERY_DEV_LIM, 55), OK) << "in_modifier says nothing";
}

TEST(JingzhaoHcr, TheNumberOfAnEventQueueIsTakenAsItStands) {
  RawHost h;
  h.init();
  h.clear_mailbox();
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
  EXPECT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = 0, .in_param = 1}), OK);
  EXPECT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = 1u << 31, .in_param = 1}), OK);
  for (const unsigned bit : {8u, 30u}) {
    EXPECT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = 1u << bit, .in_param = 1}),
              BAD_PARAM)
        << bit;
  }
}

TEST(JingzhaoCloseHca, ForgetsContextsAndMappings) {
  using spec::jingzhao::mpt_entry;
  RawHost h;
  h.init();
  util::Struct<mpt_entry> entry;
  entry.set(mpt_entry::key, 1);
  const auto install = [&] {
    h.put(entry.bytes());
    return h.with_mailbox(command_opcode::SW2HW_MPT, 1);
  };
  ASSERT_EQ(install(), OK);
  EXPECT_EQ(h.command(command_opcode::CLOSE_HCA, {}), OK);
  EXPECT_EQ(install(), BAD_PARAM) << "there is no HCA";
  EXPECT_EQ(h.command(command_opcode::CLOSE_HCA, {}), BAD_PARAM) << "there is none to be closed";
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  EXPECT_EQ(install(), BAD_PARAM) << "no ICM is mapped";
  ASSERT_EQ(h.map(2, RawHost::kMpt, h.bus(RawHost::kMpt), 1), OK);
  EXPECT_EQ(install(), OK);
}

TEST(JingzhaoHw2Sw, AnEventQueueIsTakenBackAndGetsNoMoreEvents) {
  using spec::jingzhao::eq_context;
  RawHost h;
  h.init();
  const auto ring = h.out.bytes.subspan(2048, 64);
  util::Struct<eq_context> eq;
  eq.set(eq_context::start, h.out.iova + 2048);
  eq.set(eq_context::logsize, 1);
  const auto install = [&] {
    h.put(eq.bytes());
    std::ranges::fill(ring, std::byte{0xFF});
    return h.with_mailbox(command_opcode::SW2HW_EQ, 3);
  };
  EXPECT_EQ(h.command(command_opcode::HW2SW_EQ, {.in_modifier = 3}), BAD_PARAM) << "is not there";
  ASSERT_EQ(install(), OK);
  ASSERT_EQ(install(), BAD_PARAM) << "is there";
  ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = 3, .in_param = 1u << 10}), OK);
  EXPECT_EQ(h.command(command_opcode::HW2SW_EQ, {.in_modifier = 3}), OK);
  ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
  EXPECT_EQ(ring[31], std::byte{0xFF});
  ASSERT_EQ(install(), OK) << "its number is free";
  ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
  EXPECT_EQ(ring[31], std::byte{0xFF}) << "its types are mapped no more";
}

TEST(JingzhaoHw2Sw, ACompletionQueueIsInstalledOnceAndTakenBackOnce) {
  RawHost h;
  h.init();
  h.clear_mailbox();
  EXPECT_EQ(h.command(command_opcode::HW2SW_CQ, {.in_modifier = 3}), BAD_PARAM) << "is not there";
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 3), OK);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 3), BAD_PARAM) << "is there";
  EXPECT_EQ(h.command(command_opcode::HW2SW_CQ, {.in_modifier = 3}), OK);
  EXPECT_EQ(h.command(command_opcode::HW2SW_CQ, {.in_modifier = 3}), BAD_PARAM) << "is gone";
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 3), OK) << "its number is free";
}

TEST(JingzhaoHcr, BarsHaveTheDocumentsSizesAndAreZeroElsewhere) {
  RawHost h;
  EXPECT_EQ(h.device.bar(0).size, 1u << 20);
  EXPECT_EQ(h.device.bar(2).size, 8u << 20);
  EXPECT_TRUE(h.device.bar(0).is_64bit && h.device.bar(2).is_64bit);
  EXPECT_EQ(h.read(0), 0u);
  EXPECT_EQ(h.read(0, 2), 0u);
}

TEST(JingzhaoHcr, EveryCommandOfTheTableIsKnown) {
  RawHost h;
  std::set<Opcode> seen;
  for (const auto& info : command_table()) {
    EXPECT_EQ(to_string(info.op), info.name);
    EXPECT_TRUE(seen.insert(info.op).second) << info.name;
    h.start(static_cast<std::uint32_t>(info.op), {});
    EXPECT_NE(h.finish(), BAD_OP) << info.name;
  }
  EXPECT_EQ(seen.size(), 30u);
}

TEST(JingzhaoHcr, ACommandWithoutItsMailboxIsBadParam) {
  RawHost h;
  h.init();
  for (const auto& info : command_table()) {
    if (info.in != 0) {
      h.start(static_cast<std::uint32_t>(info.op), {.in_modifier = 1, .out_param = h.out.iova});
      EXPECT_EQ(h.finish(), BAD_PARAM) << info.name << " without in_param";
    }
    if (info.out != 0) {
      h.start(static_cast<std::uint32_t>(info.op), {.op_modifier = 1});
      EXPECT_EQ(h.finish(), BAD_PARAM) << info.name << " without out_param";
    }
  }
}

TEST(JingzhaoHcr, AMailboxThatCannotBeReachedIsBadParam) {
  RawHost h;
  EXPECT_EQ(h.command(command_opcode::QUERY_DEV_LIM, {.out_param = 0x1000}), BAD_PARAM);
  EXPECT_EQ(h.command(command_opcode::INIT_HCA, {.in_param = 0x1000}), BAD_PARAM);
}

TEST(JingzhaoHcr, CommandsThatNeedTablesAreBadParamBeforeInitHca) {
  RawHost h;
  for (const auto& info : command_table()) {
    if (!info.needs_init) continue;
    EXPECT_EQ(h.with_mailbox(info.op, 1), BAD_PARAM) << info.name;
  }
}

TEST(JingzhaoQueryDevLim, GivesTheLimitsInTheFirstByteFirst) {
  RawHost h;
  ASSERT_EQ(h.with_mailbox(command_opcode::QUERY_DEV_LIM, 0), OK);
  EXPECT_EQ(h.get32(0x00), 0x01000000u) << "two reserved QPs";
  EXPECT_EQ(h.get32(0x08), 0x000D000Du);
  EXPECT_EQ(h.get32(0x0c), 0x0E0D050Eu);
  EXPECT_EQ(h.get32(0x10), 0x0C000001u);
  EXPECT_EQ(h.get32(0x18), 256u << 16 | 128);
  EXPECT_EQ(h.get32(0x1c), 64u << 16 | 64);
  EXPECT_EQ(h.get32(0x20) >> 20 & 15, 5u);
  EXPECT_EQ(h.get32(0x28), 16u << 16 | 512);
  EXPECT_EQ(fields_of<spec::jingzhao::query_dev_lim_out>(h.out.bytes, util::ByteOrder::kBig),
            (Fields{{"reserved_qp", 1},
                    {"max_qp_sz", 13},
                    {"max_cq_sz", 13},
                    {"max_qps", 14},
                    {"max_cqs", 13},
                    {"max_eqs", 5},
                    {"max_mpts", 14},
                    {"max_pds", 12},
                    {"max_pkeys", 1},
                    {"max_mtt_seg", 8},
                    {"qpc_entry_sz", 256},
                    {"cqc_entry_sz", 128},
                    {"eqc_entry_sz", 64},
                    {"mpt_entry_sz", 64},
                    {"max_mtu", 5},
                    {"max_vl", 15},
                    {"num_ports", 1},
                    {"min_page_sz", 12},
                    {"max_sg", 16},
                    {"max_desc_sz", 512},
                    {"max_sg_rq", 16},
                    {"max_desc_sz_rq", 512},
                    {"max_icm_sz", std::uint64_t{1} << 32}}))
      << "and all else is 0";
}

TEST(JingzhaoQueryAdapter, GivesTheBoardIdInItsLastEightBytes) {
  RawHost h({.board_id = 0x1122334455667788});
  ASSERT_EQ(h.with_mailbox(command_opcode::QUERY_ADAPTER, 0), OK);
  EXPECT_EQ(h.get32(0x18), 0x11223344u);
  EXPECT_EQ(h.get32(0x1c), 0x55667788u);
  EXPECT_EQ(h.get32(0x00), 0u);
}

TEST(JingzhaoInitHca, IsRefusedTwiceAndForTablesThatAreTooLarge) {
  RawHost h;
  h.put_init();
  h.put32(0x0c, 0x1000F);
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), BAD_PARAM) << "2^15 QPs";
  h.init();
  h.put_init();
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), BAD_PARAM) << "it is initialised";
  EXPECT_EQ(h.command(command_opcode::CLOSE_HCA, {}), OK);
  h.put_init();
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
}

// INIT_HCA and CLOSE_HCA in turn are a guest's cheapest commands to write.
TEST(JingzhaoWork, InitHcaIsChargedWithTheCachesThatItMakes) {
  const auto work_of = [](std::uint32_t cache, std::uint32_t log_qps, command_opcode op) {
    RawHost h({.icm_cache = cache});
    h.put_init();
    h.put32(0x0c, 0x10000 | log_qps);
    auto before = h.device.work_done();
    EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
    if (op == command_opcode::CLOSE_HCA) {
      before = h.device.work_done();
      EXPECT_EQ(h.command(op, {}), OK);
    }
    return h.device.work_done() - before;
  };
  for (const auto op : {command_opcode::INIT_HCA, command_opcode::CLOSE_HCA}) {
    const auto least = work_of(1, 6, op);
    EXPECT_GE(work_of(4096, 6, op) - least, 4095 * 100);
    EXPECT_GE(work_of(1, 14, op) - least, 1 << 14);
  }
}

/// Runs the device until it waits. Returns the work of the longest turn.
std::int64_t longest_turn(Device& device) {
  constexpr unsigned kMost = 1000;
  const util::Time now(std::chrono::seconds(1));
  std::int64_t longest = 0;
  for (unsigned i = 0; i != kMost; ++i) {
    const auto before = device.work_done();
    const bool waits = device.run(now) > now;
    longest = std::max(longest, device.work_done() - before);
    if (waits) return longest;
  }
  ADD_FAILURE() << "the device never waits";
  return longest;
}

TEST(JingzhaoWork, LargeIcmCachesAreMadeAndFreedOverTurns) {
  constexpr std::uint32_t kTables = 5;
  constexpr auto kAll = kTables * IcmCache::kEntryWork * kIcmCacheMax;
  constexpr auto kTurnMax = 3 * pcie::Function::kRunWork / 2;
  RawHost h({.icm_cache = kIcmCacheMax});
  h.put_init();
  h.start(static_cast<std::uint32_t>(command_opcode::INIT_HCA), {.in_param = h.in.iova});
  const auto before = h.device.work_done();
  h.device.run(util::Time(std::chrono::seconds(1)));
  EXPECT_FALSE(h.device.initialized());
  EXPECT_LE(longest_turn(h.device), kTurnMax);
  EXPECT_TRUE(h.device.initialized());
  EXPECT_EQ(h.finish(), OK);
  const auto made = h.device.work_done();
  EXPECT_GE(made - before, kAll * 9 / 10);
  h.start(static_cast<std::uint32_t>(command_opcode::CLOSE_HCA), {});
  EXPECT_LE(longest_turn(h.device), kTurnMax);
  EXPECT_GE(h.device.work_done() - made, kAll);
}

TEST(JingzhaoWork, AResetEndsAnInitHcaThatGoesOn) {
  RawHost h({.icm_cache = kIcmCacheMax});
  const auto begin = [&] {
    h.put_init();
    h.start(static_cast<std::uint32_t>(command_opcode::INIT_HCA), {.in_param = h.in.iova});
    h.device.run(util::Time(std::chrono::seconds(1)));
    EXPECT_FALSE(h.device.initialized());
  };
  begin();
  h.write(RawHost::kReset, 1);
  longest_turn(h.device);
  EXPECT_EQ(h.finish(), BAD_SYS_STATE);
  EXPECT_FALSE(h.device.initialized());
  begin();
  longest_turn(h.device);
  EXPECT_EQ(h.finish(), OK);
  EXPECT_TRUE(h.device.initialized());
}

TEST(JingzhaoMadIfc, GivesTheCompactStatusOfThePort) {
  RawHost h;
  ASSERT_EQ(h.command(command_opcode::MAD_IFC, {.op_modifier = 1, .out_param = h.out.iova}), OK);
  EXPECT_EQ(h.get32(0), 0x00010203u);
  EXPECT_EQ(h.get32(4) >> 24, 0u) << "Ethernet";
  EXPECT_EQ(h.with_mailbox(command_opcode::MAD_IFC, 1, 1), BAD_PARAM) << "no MADs";
}

}  // namespace
}  // namespace softhca::jingzhao::test

// Queues in memory regions that are loaded from the ICM, and the work of turns that load them
// (JingZhao 3.2.3).
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "jingzhao/icm_host.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::mpt_entry;

TEST_F(JingzhaoIcm, PagesOfRegionsAtHandHaveALimitThatAGuestDoesNotSet) {
  using spec::jingzhao::eq_context;
  constexpr std::uint32_t kRegions = 24, kEqs = 8;
  constexpr std::uint64_t kPages = limits::kMaxPages;
  static_assert(kRegions * kPages > limits::kMaxPagesAtHand);
  h.init();
  map_largest_mtt();
  for (std::uint32_t key = 0; key != kRegions; ++key) {
    install_largest_region(key);
    // An event makes the device fetch the region.
    util::Struct<eq_context> eq;
    eq.set(eq_context::tr, 1);
    eq.set(eq_context::lkey, key);
    h.put(eq.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, key % kEqs), OK);
    ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_modifier = key % kEqs, .in_param = 1u << 10}),
              OK);
    ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
    ASSERT_EQ(h.command(command_opcode::HW2SW_EQ, {.in_modifier = key % kEqs}), OK);
    const auto tree = inspect(h.device);
    const auto at = tree.find_first_of("0123456789", tree.find("pages_at_hand"));
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(std::stoull(tree.substr(at)), std::min<std::uint64_t>(key + 1, 16) * kPages) << key;
  }
}

/// A host that has the device load its regions.
class JingzhaoLoadedRegions : public JingzhaoIcm {
 protected:
  JingzhaoLoadedRegions() { begin(); }
  void begin() {
    h.init();
    map_largest_mtt();
  }
  /// Installs a region of the largest size.
  void make(std::uint32_t key, bool loaded = true) {
    using spec::jingzhao::eq_context;
    const auto before = memory_keys().pages_at_hand();
    install_largest_region(key);
    if (!loaded) return;
    // An event makes the device fetch the region.
    util::Struct<eq_context> eq;
    eq.set(eq_context::tr, 1);
    eq.set(eq_context::lkey, key);
    h.put(eq.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
    ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_param = 1u << 10}), OK);
    ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
    settle();
    ASSERT_EQ(h.command(command_opcode::HW2SW_EQ, {}), OK);
    ASSERT_EQ(memory_keys().pages_at_hand(), before + limits::kMaxPages);
  }
  std::int64_t work_of(command_opcode op, const RawHost::Call& call) {
    settle();
    const auto before = h.device.work_done();
    EXPECT_EQ(h.command(op, call), OK);
    settle();
    return h.device.work_done() - before;
  }

  /// Unmaps a page that has no region: the command unloads all.
  static constexpr RawHost::Call kUnmap{.in_modifier = 1, .op_modifier = 2, .in_param = 0x7000};
};

TEST_F(JingzhaoLoadedRegions, ACommandIsChargedForTheRegionsThatItUnloads) {
  constexpr auto kLeast = 2 * static_cast<std::int64_t>(limits::kMaxPages);
  std::int64_t removed[2], unmapped[2], closed[2];
  for (const bool loaded : {false, true}) {
    make(1, loaded);
    removed[loaded] = work_of(command_opcode::HW2SW_MPT, {.in_modifier = 1});
    make(2, loaded);
    unmapped[loaded] = work_of(command_opcode::UNMAP_ICM, kUnmap);
    make(3, loaded);
    closed[loaded] = work_of(command_opcode::CLOSE_HCA, {});
    if (!loaded) begin();
  }
  EXPECT_GE(removed[1] - removed[0], kLeast);
  EXPECT_GE(unmapped[1] - unmapped[0], kLeast);
  EXPECT_GE(closed[1] - closed[0], kLeast);
}

// A guest may have many loaded, and unload all with one command.
TEST_F(JingzhaoLoadedRegions, ThoseThatAreUnloadedTogetherAreFreedOverTurns) {
  constexpr unsigned kRegions = 4;
  constexpr auto kOne = static_cast<std::int64_t>(limits::kMaxPages) * UnloadedRegions::kPageWork;
  for (const auto& [op, call] : {std::pair{command_opcode::UNMAP_ICM, kUnmap},
                                 {command_opcode::CLOSE_HCA, RawHost::Call{}}}) {
    for (std::uint32_t key = 1; key <= kRegions; ++key) make(key);
    settle();
    h.start(static_cast<std::uint32_t>(op), call);
    const auto begin = h.device.work_done();
    std::int64_t longest = 0;
    for (bool waits = false; !waits;) {
      const auto before = h.device.work_done();
      waits = h.device.run(now) > now;
      longest = std::max(longest, h.device.work_done() - before);
    }
    EXPECT_GE(h.device.work_done() - begin, kRegions * kOne);
    EXPECT_LT(longest, 2 * kOne);
    for (std::uint32_t key = 1; op == command_opcode::UNMAP_ICM && key <= kRegions; ++key) {
      ASSERT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = key}), OK);
    }
  }
}

// The next command may load as many again.
TEST_F(JingzhaoLoadedRegions, ACommandWaitsForTheRegionsOfTheOneBeforeIt) {
  for (std::uint32_t key = 1; key <= 4; ++key) make(key);
  settle();
  h.start(static_cast<std::uint32_t>(command_opcode::UNMAP_ICM), kUnmap);
  h.device.run(now);
  ASSERT_EQ(memory_keys().at_hand(), 0u);
  const auto busy = [this] { return (h.read(h.hcr_at + 0x18) >> 23 & 1) != 0; };
  h.start(static_cast<std::uint32_t>(command_opcode::NOP), {});
  h.device.run(now);
  EXPECT_TRUE(busy());
  settle();
  EXPECT_FALSE(busy());
}

// The second page of the MTT is mapped to no memory, so only the entries of the first are written.
TEST_F(JingzhaoIcm, AListOfMttEntriesThatIsWrittenInPartEvictsTheRegionsOfItsEntries) {
  using spec::jingzhao::eq_context;
  constexpr std::uint32_t kKey = 1, kEntriesOfPage = 4096 / limits::kMttSize;
  constexpr std::uint64_t kNowhere = std::uint64_t{1} << 50;
  h.init();
  ASSERT_EQ(h.map(2, RawHost::kMtt + 4096, kNowhere, 1), OK);
  util::Struct<mpt_entry> entry;
  entry.set(mpt_entry::local_write, 1);
  entry.set(mpt_entry::key, kKey);
  entry.set(mpt_entry::length, 0x2000);
  entry.set(mpt_entry::mtt_seg, kEntriesOfPage - 2);
  h.put(entry.bytes());
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, kKey), OK);
  // An event makes the device fetch the region.
  util::Struct<eq_context> eq;
  eq.set(eq_context::tr, 1);
  eq.set(eq_context::lkey, kKey);
  h.put(eq.bytes());
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
  ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_param = 1u << 10}), OK);
  ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
  ASSERT_EQ(memory_keys().at_hand(), 1u);
  h.clear_mailbox();
  h.put64(0x18, kEntriesOfPage - 2);  // mtt_start_index
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 4), BAD_PARAM);
  EXPECT_EQ(memory_keys().at_hand(), 0u);
}

// Arming a CQ reads its ring, which loads its region. All CQs together are too much work for a
// turn.
TEST_F(JingzhaoIcm, ATurnArmsNoMoreQueuesThanItsWorkAllows) {
  using spec::jingzhao::cq_context;
  using spec::jingzhao::uar_page;
  constexpr std::uint32_t kCqs = 24;
  static_assert(kCqs * limits::kMaxPages > limits::kMaxPagesAtHand);
  h.init();
  map_largest_mtt();
  for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
    install_largest_region(cqn);
    util::Struct<cq_context> cq;
    cq.set(cq_context::lkey, cqn);
    h.put(cq.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, cqn), OK);
  }
  settle();
  ASSERT_EQ(memory_keys().pages_at_hand(), 0u);
  for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
    h.write(uar_page::arm_cqn.kOffset, cqn, Device::kUarBar);
  }
  h.device.run(now);
  EXPECT_EQ(memory_keys().pages_at_hand(), limits::kMaxPages) << "those of one CQ";
  settle();
  EXPECT_LE(memory_keys().pages_at_hand(), limits::kMaxPagesAtHand + limits::kMaxPages);
  for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
    EXPECT_TRUE(h.device.objects().completion_queues->show(Cqn(cqn))->armed) << cqn;
  }
}

TEST_F(JingzhaoIcm, ATurnArmsNoMoreEventQueuesThanItsWorkAllows) {
  using spec::jingzhao::eq_context;
  using spec::jingzhao::uar_page;
  constexpr std::uint32_t kEqs = 8;
  h.init();
  ASSERT_TRUE(h.host.enable_interrupts(kEqs));
  map_largest_mtt();
  for (std::uint32_t eqn = 0; eqn != kEqs; ++eqn) {
    install_largest_region(eqn);
    util::Struct<eq_context> eq;
    eq.set(eq_context::tr, 1);
    eq.set(eq_context::intr, eqn);
    eq.set(eq_context::lkey, eqn);
    h.put(eq.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, eqn), OK);
  }
  settle();
  ASSERT_EQ(memory_keys().pages_at_hand(), 0u);
  for (std::uint32_t eqn = 0; eqn != kEqs; ++eqn) {
    h.write(uar_page::arm_eqn.kOffset, eqn, Device::kUarBar);
  }
  h.device.run(now);
  EXPECT_EQ(memory_keys().pages_at_hand(), limits::kMaxPages) << "those of one EQ";
  settle();
  EXPECT_EQ(memory_keys().pages_at_hand(), kEqs * limits::kMaxPages);
  for (std::uint32_t eqn = 0; eqn != kEqs; ++eqn) {
    // If software has not returned the EQ's last entry yet, arming interrupts instead.
    const bool armed = h.device.objects().event_queues->show(Eqn(eqn))->armed;
    EXPECT_NE(armed, h.host.interrupts(eqn) == 1) << eqn;
  }
}

// Polling the RQ of a QP in ERR, whose receives are flushed, loads the region of the RQ.
TEST_F(JingzhaoIcm, ATurnPollsNoMoreQueuesThanItsWorkAllows) {
  using spec::jingzhao::qp_context;
  using spec::jingzhao::qp_state;
  constexpr std::uint32_t kQps = 24, kFirst = 8;
  constexpr auto kMost = limits::kMaxPagesAtHand + limits::kMaxPages;
  static_assert(kQps * limits::kMaxPages > kMost);
  h.init();
  map_largest_mtt();
  h.clear_mailbox();
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  for (std::uint32_t key = 0; key != kQps; ++key) {
    install_largest_region(key);
    util::Struct<qp_context> context;
    context.set(qp_context::local_qpn, kFirst + key);
    context.set(qp_context::rcv_wqe_base_l, key);
    context.set(qp_context::rq_entry_sz_log, 5);
    context.set(qp_context::rcv_wqe_len, 1 << 10);
    for (const auto& [state, opcode] : {std::pair{qp_state::INIT, command_opcode::RST2INIT_QPEE},
                                        {qp_state::ERR, command_opcode::TO_ERR_QPEE}}) {
      context.set(qp_context::state, static_cast<std::uint32_t>(state));
      h.put(context.bytes());
      ASSERT_EQ(h.with_mailbox(opcode, kFirst + key), OK);
    }
    settle();
  }
  ASSERT_EQ(memory_keys().at_hand(), limits::kMaxPagesAtHand / limits::kMaxPages);
  for (unsigned i = 0; i != 4; ++i) {
    now += std::chrono::milliseconds(2);  // the next poll is due
    const auto loaded = memory_keys().mpts().counters().hits;
    h.device.run(now);
    EXPECT_LE(memory_keys().pages_at_hand(), kMost) << i;
    settle();
    EXPECT_GT(memory_keys().mpts().counters().hits, loaded) << i;
  }
}

// Software may change a context in its own memory, without a command. The next place must still be
// a WQE of the queue.
TEST_F(JingzhaoIcm, AReceiveQueueWhoseStrideChangesInHostMemoryBeginsAnew) {
  using spec::jingzhao::cq_context;
  using spec::jingzhao::qp_context;
  using spec::jingzhao::qp_state;
  constexpr std::uint32_t kQpn = 5, kCqKey = 1, kRqKey = 2;
  constexpr std::size_t kHalf = 2048, kQueue = 128;
  const auto cqes = h.out.bytes.first(kHalf), receives = h.out.bytes.subspan(kHalf);
  std::ranges::fill(cqes, std::byte{0xFF});  // the device owns all entries
  h.init();
  for (const auto key : {kCqKey, kRqKey}) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::physical, 1);
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::start, h.out.iova + (key == kCqKey ? 0 : kHalf));
    entry.set(mpt_entry::length, kHalf);
    h.put(entry.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, key), OK);
  }
  util::Struct<cq_context> cq;
  cq.set(cq_context::lkey, kCqKey);
  cq.set(cq_context::logsize, 6);
  h.put(cq.bytes());
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  util::Struct<qp_context> context;
  context.set(qp_context::local_qpn, kQpn);
  context.set(qp_context::rcv_wqe_base_l, kRqKey);
  context.set(qp_context::rcv_wqe_len, kQueue);
  context.set(qp_context::rq_entry_sz_log, 5);
  receives[0] = std::byte{1};  // posted
  for (const auto& [state, opcode] : {std::pair{qp_state::INIT, command_opcode::RST2INIT_QPEE},
                                      {qp_state::ERR, command_opcode::TO_ERR_QPEE}}) {
    context.set(qp_context::state, static_cast<std::uint32_t>(state));
    h.put(context.bytes());
    ASSERT_EQ(h.with_mailbox(opcode, kQpn), OK);
  }
  const auto place = [&] {
    return std::as_const(*h.device.objects().queue_pairs).find(Qpn(kQpn))->receive_place();
  };
  const auto poll = [&] {
    now += std::chrono::milliseconds(2);
    settle();
  };
  ASSERT_EQ(place(), 32u) << "the first receive is flushed";
  context.set(qp_context::rq_entry_sz_log, 6);
  std::ranges::copy(context.bytes(), h.icm.bytes.begin() + kQpn * limits::kQpcSize);
  ASSERT_EQ(h.map(1, RawHost::kQpc, h.bus(RawHost::kQpc), RawHost::kTablePages), OK);
  receives[0] = std::byte{0};
  receives[32] = std::byte{1};  // makes the device reload the context
  poll();
  EXPECT_EQ(place(), 0u);
  receives[0] = std::byte{1};
  poll();
  EXPECT_EQ(place(), 64u);
  receives[0] = std::byte{0};
  receives[64] = std::byte{1};
  poll();
  EXPECT_EQ(place(), 0u) << "behind the last comes the first";
}

// Checking all QPs of a full table in one turn would delay other guests.
TEST_F(JingzhaoIcm, AFewQueuePairsATurnAreCheckedWhenContextsAreUnmapped) {
  using spec::jingzhao::qp_context;
  constexpr std::uint64_t kTable = 0x1000000;
  constexpr std::uint32_t kNear = 5, kFar = 3000, kPages = 0xC0;
  const auto page_of = [](std::uint32_t qpn) {
    return kTable + std::uint64_t{qpn} * limits::kQpcSize / 4096 * 4096;
  };
  ASSERT_EQ(h.map(1, page_of(kNear), h.bus(RawHost::kQpc), 1), OK);
  ASSERT_EQ(h.map(1, page_of(kFar), h.bus(RawHost::kQpc) + 4096, 1), OK);
  ASSERT_EQ(h.map(1, RawHost::kCqc, h.bus(RawHost::kCqc), RawHost::kTablePages), OK);
  h.put_init();
  h.put64(0x08, kTable | 14);
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  h.clear_mailbox();
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  for (const auto qpn : {kNear, kFar}) {
    util::Struct<qp_context> context;
    context.set(qp_context::local_qpn, qpn);
    context.set(qp_context::state, 1);
    h.put(context.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, qpn), OK);
  }
  settle();
  const auto state_of = [&](std::uint32_t qpn) {
    return std::as_const(*h.device.objects().queue_pairs).find(Qpn(qpn))->rdma_qp().state();
  };
  h.start(static_cast<std::uint32_t>(command_opcode::UNMAP_ICM),
          {.in_modifier = kPages, .op_modifier = 1, .in_param = kTable});
  EXPECT_EQ(h.device.run(now), now);
  EXPECT_EQ(state_of(kNear), rdma::QpState::kError);
  EXPECT_EQ(state_of(kFar), rdma::QpState::kInit) << "in a later turn";
  settle();
  EXPECT_EQ(state_of(kFar), rdma::QpState::kError);
}

// More QPs fail than a turn handles. One that waits is created again, and fails again.
TEST_F(JingzhaoIcm, AQueuePairThatIsCreatedAgainWhileItWaitsToFailHasOneEvent) {
  using spec::jingzhao::qp_context;
  constexpr std::uint64_t kTable = 0x1000000;
  constexpr std::uint32_t kFirst = 5, kCount = 300, kLast = kFirst + kCount - 1, kCqs = 2;
  ASSERT_EQ(h.map(1, kTable, h.bus(RawHost::kQpc), 512 * limits::kQpcSize / 4096), OK);
  ASSERT_EQ(h.map(1, RawHost::kCqc, h.bus(RawHost::kMpt), RawHost::kTablePages), OK);
  h.put_init();
  h.put64(0x08, kTable | 9);
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  h.clear_mailbox();
  for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, cqn), OK);
  }
  util::Struct<qp_context> context;
  const auto describe = [&](std::uint32_t qpn, std::uint32_t cqn) {
    context.set(qp_context::local_qpn, qpn);
    context.set(qp_context::cqn_snd, cqn);
    context.set(qp_context::cqn_rcv, cqn);
    context.set(qp_context::state, 1);
  };
  for (auto qpn = kFirst; qpn <= kLast; ++qpn) {
    describe(qpn, 0);
    h.put(context.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, qpn), OK);
  }
  settle();
  auto& queue_pairs = *h.device.objects().queue_pairs;
  const auto state_of = [&](std::uint32_t qpn) {
    return std::as_const(queue_pairs).find(Qpn(qpn))->rdma_qp().state();
  };
  const auto take_back = [&](std::uint32_t cqn) {
    h.start(static_cast<std::uint32_t>(command_opcode::HW2SW_CQ), {.in_modifier = cqn});
    h.device.run(now);
  };
  // No event type is mapped to an EQ.
  const auto events = [&] { return h.device.objects().event_queues->counters().unmapped; };
  take_back(0);
  ASSERT_EQ(state_of(kLast), rdma::QpState::kError);
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it waits to fail";
  ASSERT_TRUE(queue_pairs.to_reset(Qpn(kFirst)));
  describe(kFirst, 1);
  ASSERT_TRUE(queue_pairs.modify(Qpn(kFirst), rdma::QpState::kReset, rdma::QpState::kInit,
                                 util::View<qp_context>(context.bytes())));
  take_back(1);
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(events(), kCount);
}

/// Two queue pairs whose numbers the first turns after a loss do not check. Their contexts are at
/// the beginning of the host's ICM.
class JingzhaoLosses : public JingzhaoIcm {
 protected:
  using Context = spec::jingzhao::qp_context;
  static constexpr std::uint64_t kTable = 0x1000000;
  static constexpr std::uint32_t kFirst = 12000, kSecond = kFirst + 1, kCqs = 3;

  JingzhaoLosses() {
    EXPECT_EQ(map_contexts(), OK);
    EXPECT_EQ(h.map(1, RawHost::kCqc, h.bus(RawHost::kCqc), RawHost::kTablePages), OK);
    h.put_init();
    h.put64(0x08, kTable | 14);
    EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
    h.clear_mailbox();
    for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
      EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, cqn), OK);
    }
  }
  static constexpr std::uint64_t kContexts = kTable + std::uint64_t{kFirst} * limits::kQpcSize;
  static_assert(kContexts % 4096 == 0);

  hcr_status map_contexts() { return h.map(1, kContexts, h.bus(RawHost::kQpc), 1); }
  /// Starts a command with mailboxes, or without, and runs a single turn.
  void in_one_turn(command_opcode op, RawHost::Call call) {
    call.out_param = h.out.iova;
    h.start(static_cast<std::uint32_t>(op), call);
    h.device.run(now);
  }
  static void describe(util::MutableView<Context> context, std::uint32_t qpn, std::uint32_t cqn) {
    context.set(Context::local_qpn, qpn);
    context.set(Context::cqn_snd, cqn);
    context.set(Context::cqn_rcv, cqn);
    context.set(Context::state, 1);
  }
  void create(std::uint32_t qpn, std::uint32_t cqn) {
    util::Struct<Context> context;
    describe(context, qpn, cqn);
    EXPECT_TRUE(queue_pairs().modify(Qpn(qpn), rdma::QpState::kReset, rdma::QpState::kInit,
                                     util::View<Context>(context.bytes())));
  }
  QueuePairs& queue_pairs() { return *h.device.objects().queue_pairs; }
  rdma::QpState state_of(std::uint32_t qpn) {
    return std::as_const(queue_pairs()).find(Qpn(qpn))->rdma_qp().state();
  }
};

TEST_F(JingzhaoLosses, AQueuePairFailsThoughItsContextIsMappedAgainBeforeItIsChecked) {
  create(kFirst, 0);
  create(kSecond, 0);
  settle();
  in_one_turn(command_opcode::UNMAP_ICM,
              {.in_modifier = 1024, .op_modifier = 1, .in_param = kTable});
  h.clear_mailbox();
  h.put64(0x10, kContexts);
  h.put64(0x18, h.bus(RawHost::kQpc) | 1);
  in_one_turn(command_opcode::MAP_ICM, {.in_modifier = 1, .op_modifier = 1, .in_param = h.in.iova});
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it is not checked yet";
  ASSERT_TRUE(queue_pairs().to_reset(Qpn(kSecond)));
  create(kSecond, 0);
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit) << "its context is in the new memory";
}

TEST_F(JingzhaoLosses, AQueuePairFailsThoughItsCqIsInstalledAgainBeforeItIsChecked) {
  create(kFirst, 1);
  create(kSecond, 0);
  settle();
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 1});
  h.clear_mailbox();
  in_one_turn(command_opcode::SW2HW_CQ, {.in_modifier = 1, .in_param = h.in.iova});
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it is not checked yet";
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit);
}

// In host memory, software moves a queue pair to a CQ that was lost and installed again. Then
// another CQ is lost.
TEST_F(JingzhaoLosses, ALossCountsOnceForAllQueuePairs) {
  create(kSecond, 0);
  settle();
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 1});
  settle();
  h.clear_mailbox();
  in_one_turn(command_opcode::SW2HW_CQ, {.in_modifier = 1, .in_param = h.in.iova});
  util::Struct<Context> moved;
  describe(moved, kSecond, 1);
  std::ranges::copy(moved.bytes(), h.icm.bytes.begin() + limits::kQpcSize);
  ASSERT_EQ(map_contexts(), OK);
  util::Struct<Context> queried;
  ASSERT_TRUE(queue_pairs().query(Qpn(kSecond), queried));
  ASSERT_EQ(queried.get(Context::cqn_snd), 1u);
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 2});
  settle();
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit);
}

// A CQ may fail while frames arrive. Then reads of the HCR may run HW2SW_CQ, SW2HW_CQ and RST2INIT
// before the device has a turn, in which it fails the queue pairs of the CQ.
TEST_F(JingzhaoLosses, AFailedCqFailsNoQueuePairOfTheNextCqWithItsNumber) {
  constexpr Cqn kCqn(1);
  create(kSecond, kCqn.value());
  settle();
  auto& cqs = *h.device.objects().completion_queues;
  EXPECT_FALSE(cqs.write(kCqn, [](const auto&) {})) << "it has no memory";
  ASSERT_TRUE(cqs.has_failed());
  ASSERT_TRUE(cqs.remove(kCqn));
  queue_pairs().lose_cq(kCqn);
  const util::Struct<spec::jingzhao::cq_context> context;
  ASSERT_TRUE(cqs.install(kCqn, util::View<spec::jingzhao::cq_context>(context.bytes())));
  create(kFirst, kCqn.value());
  settle();
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kError);
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kInit);
}

TEST_F(JingzhaoIcm, AnEventQueueMayBeginAtAnyAddress) {
  using spec::jingzhao::eq_context;
  h.init();
  const auto ring = h.out.bytes.subspan(2047, 2 * 32);
  std::ranges::fill(ring, std::byte{0xFF});  // the device owns all entries
  util::Struct<eq_context> eq;
  eq.set(eq_context::start, h.out.iova + 2047);
  eq.set(eq_context::logsize, 1);
  h.put(eq.bytes());
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), OK);
  ASSERT_EQ(h.command(command_opcode::MAP_EQ, {.in_param = 1u << 10}), OK);
  for (const std::size_t at : {0u, 32u}) {
    ASSERT_EQ(h.command(command_opcode::NOP, {.e = true}), OK);
    EXPECT_EQ(ring[at + 1], std::byte{0x0a}) << "its type, CMD";
    EXPECT_EQ(ring[at + 31], std::byte{0}) << "software owns it";
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test

// Queues in memory regions that are loaded from the ICM, and the work of turns that load them
// (JingZhao 3.2.3).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "jingzhao/icm_host.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::mpt_entry;

TEST_F(JingzhaoIcm, PagesOfCachedRegionsHaveALimitThatAGuestDoesNotSet) {
  using spec::jingzhao::eq_context;
  constexpr std::uint32_t kRegions = 24, kEqs = 8;
  constexpr std::uint64_t kPages = limits::kMaxPages;
  static_assert(kRegions * kPages > limits::kMaxCachedPages);
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
    const auto at = tree.find_first_of("0123456789", tree.find("cached_pages"));
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(std::stoull(tree.substr(at)), std::min<std::uint64_t>(key + 1, 16) * kPages) << key;
  }
}

// With the largest cache, 65,536 are compared.
TEST_F(JingzhaoIcm, ACommandIsChargedForTheRegionsThatItIsComparedWith) {
  constexpr std::uint32_t kMany = 1000;
  for (const auto table : {RawHost::kMpt, RawHost::kMtt}) {
    ASSERT_EQ(h.map(2, table, h.bus(table), RawHost::kTablePages), OK);
  }
  h.put_init();
  h.put64(0x30, RawHost::kMpt | 10);
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  const auto load = [&](std::uint32_t key) {
    ASSERT_EQ(install_mpt(key), OK);
    auto& keys = h.device.objects().memory_keys->table();
    ASSERT_TRUE(keys.check(rdma::MKey(key), {.pd = {}, .qpn = {}}, 0x1000, 1, rdma::kLocalWrite));
    settle();
  };
  const auto work_of_removal = [&](std::uint32_t key) {
    const auto before = h.device.work_done();
    EXPECT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = key}), OK);
    settle();
    return h.device.work_done() - before;
  };
  load(0);
  const auto alone = work_of_removal(0);
  for (std::uint32_t key = 0; key != kMany; ++key) load(key);
  ASSERT_EQ(memory_keys().cached(), kMany);
  EXPECT_GE(work_of_removal(0) - alone, kMany);
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
    const auto before = memory_keys().cached_pages();
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
    ASSERT_EQ(memory_keys().cached_pages(), before + limits::kMaxPages);
  }
  std::int64_t work_of(command_opcode op, const RawHost::Call& call) {
    settle();
    const auto before = h.device.work_done();
    EXPECT_EQ(h.command(op, call), OK);
    settle();
    return h.device.work_done() - before;
  }

  /// Runs the device until it waits. Returns the work of the longest turn.
  std::int64_t longest_turn() {
    std::int64_t longest = 0;
    for (bool waits = false; !waits;) {
      const auto before = h.device.work_done();
      waits = h.device.run(now) > now;
      longest = std::max(longest, h.device.work_done() - before);
    }
    return longest;
  }
  rdma::KeyTable& keys() { return h.device.objects().memory_keys->table(); }
  /// Reads a byte of a page through the region. False if that fails.
  bool read(std::uint32_t key, std::uint64_t page, std::size_t at, std::byte& out) {
    const auto address = (page << limits::kLogMinPage) + at;
    const auto found =
        keys().check(rdma::MKey(key), {.pd = {}, .qpn = {}}, address, 1, rdma::kLocalRead);
    return found && keys().read(*found.key, address, {&out, 1});
  }

  /// A turn may end with a small piece of work.
  static constexpr std::int64_t kTurnMax = pcie::Function::kRunWork + 20'000;
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
  ASSERT_EQ(memory_keys().cached(), 0u);
  const auto busy = [this] { return (h.read(h.hcr_at + 0x18) >> 23 & 1) != 0; };
  h.start(static_cast<std::uint32_t>(command_opcode::NOP), {});
  h.device.run(now);
  EXPECT_TRUE(busy());
  settle();
  EXPECT_FALSE(busy());
}

TEST_F(JingzhaoLoadedRegions, ALargeOneIsLoadedOverTurns) {
  constexpr auto kAll = static_cast<std::int64_t>(limits::kMaxPages) * MemoryKeys::kPageWork;
  make(1, false);
  settle();
  const auto begin = h.device.work_done();
  std::byte byte;
  (void)read(1, 0, 0, byte);
  EXPECT_EQ(memory_keys().cached_pages(), limits::kMaxPages);
  EXPECT_LE(keys().work().pending(), pcie::Function::kRunWork / limits::kMaxSges)
      << "a WQE may name as many regions";
  EXPECT_LE(longest_turn(), kTurnMax);
  EXPECT_GE(h.device.work_done() - begin, kAll);
  EXPECT_EQ(memory_keys().partial(), 0u);
}

// The queue pairs go on meanwhile.
TEST_F(JingzhaoLoadedRegions, APageMayBeUsedBeforeItIsLoaded) {
  constexpr std::uint64_t kEntriesOfPage = 4096 / limits::kMttSize, kLast = limits::kMaxPages - 1;
  // All pages of the MTT are the same one, whose last entry names a page of memory.
  const auto mtt = h.icm.bytes.subspan(RawHost::kMtt - RawHost::kQpc, 4096);
  util::store_be64(mtt.data() + (kEntriesOfPage - 1) * limits::kMttSize, h.out.iova);
  make(1, false);
  h.out.bytes[5] = std::byte{0x5A};
  for (const bool loaded : {false, true}) {
    for (const auto page : {kLast, kLast - kEntriesOfPage}) {
      std::byte byte{};
      ASSERT_TRUE(read(1, page, 5, byte)) << loaded << page;
      EXPECT_EQ(byte, std::byte{0x5A}) << loaded << page;
      const auto cost = keys().work().drain();
      EXPECT_LT(cost, loaded ? 1 : 20'000);
    }
    EXPECT_EQ(memory_keys().partial(), loaded ? 0u : 1u);
    settle();
  }
}

TEST_F(JingzhaoLoadedRegions, OneWhoseLastMttEntriesAreNotMappedIsUnloaded) {
  constexpr std::uint64_t kMttSize = limits::kMaxPages * limits::kMttSize;
  make(1, false);
  ASSERT_EQ(h.unmap(2, RawHost::kMtt + kMttSize - 4096, 1), OK);
  std::byte byte;
  EXPECT_FALSE(read(1, limits::kMaxPages - 1, 0, byte));
  EXPECT_EQ(memory_keys().cached(), 1u);
  settle();
  EXPECT_EQ(memory_keys().cached(), 0u);
  EXPECT_EQ(memory_keys().cached_pages(), 0u);
  EXPECT_EQ(memory_keys().partial(), 0u);
}

TEST_F(JingzhaoLoadedRegions, ALargeOneIsFreedOverTurns) {
  for (const auto& [op, call] : {std::pair{command_opcode::UNMAP_ICM, kUnmap},
                                 {command_opcode::HW2SW_MPT, RawHost::Call{.in_modifier = 1}}}) {
    make(1);
    settle();
    h.start(static_cast<std::uint32_t>(op), call);
    const auto begin = h.device.work_done();
    EXPECT_LE(longest_turn(), kTurnMax);
    EXPECT_GE(h.device.work_done() - begin,
              static_cast<std::int64_t>(limits::kMaxPages) * UnloadedRegions::kPageWork);
    if (op == command_opcode::UNMAP_ICM) {
      ASSERT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1}), OK);
    }
  }
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
  ASSERT_EQ(memory_keys().cached(), 1u);
  h.clear_mailbox();
  h.put64(0x18, kEntriesOfPage - 2);  // mtt_start_index
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 4), BAD_PARAM);
  EXPECT_EQ(memory_keys().cached(), 0u);
}

// Arming a CQ reads its ring, which loads its region. All CQs together are too much work for a
// turn.
TEST_F(JingzhaoIcm, ATurnArmsNoMoreQueuesThanItsWorkAllows) {
  using spec::jingzhao::cq_context;
  using spec::jingzhao::uar_page;
  constexpr std::uint32_t kCqs = 24;
  static_assert(kCqs * limits::kMaxPages > limits::kMaxCachedPages);
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
  ASSERT_EQ(memory_keys().cached_pages(), 0u);
  for (std::uint32_t cqn = 0; cqn != kCqs; ++cqn) {
    h.write(uar_page::arm_cqn.kOffset, cqn, Device::kUarBar);
  }
  h.device.run(now);
  EXPECT_EQ(memory_keys().cached_pages(), limits::kMaxPages) << "those of one CQ";
  settle();
  EXPECT_LE(memory_keys().cached_pages(), limits::kMaxCachedPages + limits::kMaxPages);
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
  ASSERT_EQ(memory_keys().cached_pages(), 0u);
  for (std::uint32_t eqn = 0; eqn != kEqs; ++eqn) {
    h.write(uar_page::arm_eqn.kOffset, eqn, Device::kUarBar);
  }
  h.device.run(now);
  EXPECT_EQ(memory_keys().cached_pages(), limits::kMaxPages) << "those of one EQ";
  settle();
  EXPECT_EQ(memory_keys().cached_pages(), kEqs * limits::kMaxPages);
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
  constexpr auto kMost = limits::kMaxCachedPages + limits::kMaxPages;
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
  ASSERT_EQ(memory_keys().cached(), limits::kMaxCachedPages / limits::kMaxPages);
  for (unsigned i = 0; i != 4; ++i) {
    now += std::chrono::milliseconds(2);  // the next poll is due
    const auto loaded = memory_keys().mpts().counters().hits;
    h.device.run(now);
    EXPECT_LE(memory_keys().cached_pages(), kMost) << i;
    settle();
    EXPECT_GT(memory_keys().mpts().counters().hits, loaded) << i;
  }
}

// Software may change a context in its own memory, without a command. The next place must still be
// a WQE of the queue.
TEST_F(JingzhaoIcm, AReceiveQueueWhoseStrideChangesInHostMemoryStartsAgain) {
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
    return std::as_const(*h.device.objects().queue_pairs).find(Qpn(kQpn))->receives().place();
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

// ICM: mappings by software, their order, and the storage of contexts (JingZhao 3.2.2, 3.2.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jingzhao/icm_cache.h"
#include "jingzhao/raw_host.h"
#include "jingzhao/world.h"
#include "spec/infiniband/qp_states.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::mpt_entry;

class JingzhaoIcm : public testing::Test {
 protected:
  void put_mpt(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::sw_owns, 0xF);
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::start, 0x1000);
    entry.set(mpt_entry::length, 0x1000);
    h.put(entry.bytes());
  }
  hcr_status install_mpt(std::uint32_t index) {
    put_mpt(index);
    return h.with_mailbox(command_opcode::SW2HW_MPT, index);
  }
  /// One 2 MiB MTT for all regions that install_largest_region() makes: every page maps the same
  /// page of zeros.
  void map_largest_mtt() {
    for (std::uint64_t virt = 0; virt != limits::kMaxPages * limits::kMttSize; virt += 0x1000) {
      ASSERT_EQ(h.map(2, RawHost::kMtt + virt, h.bus(RawHost::kMtt), 1), OK);
    }
  }
  void install_largest_region(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::length, limits::kMaxPages << limits::kLogMinPage);
    h.put(entry.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, key), OK);
  }
  /// Runs the device until it has paid for its work and waits.
  void settle() {
    constexpr unsigned kMost = 2000;
    for (unsigned i = 0; i != kMost; ++i) {
      if (h.device.run(now) > now) return;
    }
    FAIL() << "the device never waits";
  }
  const MemoryKeys& memory_keys() { return *h.device.objects().memory_keys; }

  util::Time now{std::chrono::seconds(1)};  // as in RawHost::run()
  RawHost h;
};

TEST(JingzhaoSmallIcm, TheLowerNumberedOfTwoChunksIsInTheHigherHalf) {
  RawHost h({.icm_cache = 1});
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  // Three one-page chunks for the MTT: entry 0 at 10h, 1 at 00h, 2 at 30h. The host's last page
  // comes first.
  h.clear_mailbox();
  const std::size_t places[] = {0x10, 0x00, 0x30};
  for (std::uint64_t i = 0; i != 3; ++i) {
    h.put64(places[i], RawHost::kMtt + i * 0x1000);
    h.put64(places[i] + 8, (h.bus(RawHost::kMtt) + (2 - i) * 0x1000) | 1);
  }
  h.put64(0x20, 0xDEAD000);  // the unused low half of the last group
  h.put64(0x28, 0xDEAD001);
  ASSERT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 3, 2), OK);
  for (std::uint64_t page = 0; page != 4; ++page) {
    h.clear_mailbox();
    h.put64(0x18, page % 3 * 512);
    h.put64(0x38, (page + 1) << 12);
    ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), OK);
  }
  // The entries that the chip evicted.
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  EXPECT_EQ(util::load_be64(mtt + 0x2000), 0x1000u) << "the first page of the MTT";
  EXPECT_EQ(util::load_be64(mtt + 0x1000), 0x2000u);
  EXPECT_EQ(util::load_be64(mtt), 0x3000u);
}

TEST_F(JingzhaoIcm, AContextWithoutIcmIsRefused) {
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  EXPECT_EQ(install_mpt(1), BAD_PARAM);
  h.clear_mailbox();
  h.put32(0x00, 1 << 18);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), BAD_PARAM);
  ASSERT_EQ(h.map(2, RawHost::kMpt, h.bus(RawHost::kMpt), 1), OK);
  EXPECT_EQ(install_mpt(1), OK);
}

TEST_F(JingzhaoIcm, AQueuePairOfATypeThatThereIsNotIsRefused) {
  using spec::jingzhao::qp_context;
  h.init();
  h.clear_mailbox();
  h.put32(0x0c, 0);
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  for (const auto& [type, status] : {std::pair{2u, BAD_PARAM}, {4u, BAD_PARAM}, {0u, OK}}) {
    util::Struct<qp_context> context;
    context.set(qp_context::local_qpn, 5);
    context.set(qp_context::state, 1);
    context.set(qp_context::type, type);
    h.put(context.bytes());
    EXPECT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, 5), status) << type;
  }
}

TEST_F(JingzhaoIcm, APkeyIndexBeyondTheTableIsRefused) {
  using spec::jingzhao::qp_context;
  h.init();
  h.clear_mailbox();
  h.put32(0x0c, 0);
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  util::Struct<qp_context> context;
  context.set(qp_context::local_qpn, 5);
  const auto go = [&](std::uint32_t state, command_opcode opcode, std::uint32_t index) {
    context.set(qp_context::state, state);
    context.set(qp_context::pkey_index, index);
    h.put(context.bytes());
    return h.with_mailbox(opcode, 5);
  };
  for (const auto& [index, status] : {std::pair{2u, BAD_PARAM}, {127u, BAD_PARAM}, {1u, OK}}) {
    EXPECT_EQ(go(1, command_opcode::RST2INIT_QPEE, index), status) << index;
  }
  context.set(qp_context::opt_param_mask,
              spec::infiniband::QpAttributeSet({spec::infiniband::QpAttribute::kPkeyIndex}).bits());
  EXPECT_EQ(go(1, command_opcode::INIT2INIT_QPEE, 2), BAD_PARAM);
  EXPECT_EQ(go(1, command_opcode::INIT2INIT_QPEE, 0), OK);
}

TEST_F(JingzhaoIcm, EachGroupOfTablesHasItsOwnMappings) {
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  ASSERT_EQ(h.map(1, RawHost::kMpt, h.bus(RawHost::kMpt), 1), OK);
  EXPECT_EQ(install_mpt(1), BAD_PARAM) << "the page is one of the queue contexts";
}

TEST_F(JingzhaoIcm, MapAndUnmapRefuseWhatIsNoPage) {
  EXPECT_EQ(h.map(3, 0, 0, 1), BAD_PARAM) << "group";
  EXPECT_EQ(h.map(1, 0x800, 0, 1), BAD_PARAM) << "alignment";
  EXPECT_EQ(h.map(1, 0, 0, 0), BAD_PARAM) << "no pages";
  EXPECT_EQ(h.map(1, ~0xFFFull, 0x1000, 2), BAD_PARAM) << "wraps";
  h.clear_mailbox();
  EXPECT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 0, 1), BAD_PARAM) << "no entries";
  EXPECT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 257, 1), BAD_PARAM) << "more than a mailbox";
  EXPECT_EQ(h.unmap(3, 0, 1), BAD_PARAM);
  EXPECT_EQ(h.unmap(1, 0x10, 1), BAD_PARAM);
  EXPECT_EQ(h.unmap(1, 0x7000, 5), OK) << "nothing is mapped there";
}

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

// Arming a CQ reads its ring, and that loads its region: more work than a turn has.
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
    // An EQ whose last entry software still owns interrupts instead.
    const bool armed = h.device.objects().event_queues->show(Eqn(eqn))->armed;
    EXPECT_NE(armed, h.host.interrupts(eqn) == 1) << eqn;
  }
}

// So does a look at the RQ of a QP in ERR, whose receives are flushed.
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

// Software may change a context behind the device, in its own memory. The next place must still be
// one of the queue, and lead to its end.
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
  receives[32] = std::byte{1};  // makes the device look again
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

TEST(JingzhaoSmallIcm, WriteMttTakesTheFirstOfFourEntriesFromTheHighestPlace) {
  RawHost h({.icm_cache = 1});
  h.init();
  h.clear_mailbox();
  h.put64(0x18, 4);  // mtt_start_index
  const std::size_t places[] = {0x38, 0x30, 0x28, 0x20, 0x58, 0x50};
  for (std::uint64_t i = 0; i != 6; ++i) h.put64(places[i], (i + 1) << 12);
  ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 6), OK);
  h.clear_mailbox();
  h.put64(0x18, 100);
  ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), OK) << "puts the others off the chip";
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  for (std::uint64_t i = 0; i != 6; ++i) {
    EXPECT_EQ(util::load_be64(mtt + 8 * (4 + i)), (i + 1) << 12) << i;
  }
}

TEST_F(JingzhaoIcm, WriteMttTakesAsManyEntriesAsAMailboxHas) {
  h.init();
  h.clear_mailbox();
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 509), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 508), OK);
}

// The cache loads eight entries at once. The last entries must not require ICM beyond the table's
// end.
TEST_F(JingzhaoIcm, AnMttMayBeginAtAnyEntry) {
  for (const auto table : {RawHost::kMpt, RawHost::kMtt}) {
    ASSERT_EQ(h.map(2, table, h.bus(table), RawHost::kTablePages), OK);
  }
  h.put_init();
  h.put64(0x38, RawHost::kMtt + 4);
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), BAD_PARAM) << "the half of an entry";
  h.put_init();
  h.put64(0x38, RawHost::kMtt + 8);
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  constexpr std::uint64_t kLast = RawHost::kTablePages * 512 - 2;
  for (const auto& [index, status] :
       {std::pair{std::uint64_t{0}, OK}, {kLast, OK}, {kLast + 1, BAD_PARAM}}) {
    h.clear_mailbox();
    h.put64(0x18, index);
    EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), status) << index;
  }
}

// The bound of docs/serve.md holds for any sequence of map and unmap.
class JingzhaoIcmChunks : public JingzhaoIcm {
 protected:
  static constexpr std::uint64_t kApart = 4 * Icm::kPage;
  /// Maps chunks of three pages in one command.
  hcr_status map_chunks(std::uint64_t first, std::uint32_t count) {
    h.clear_mailbox();
    for (std::uint32_t i = 0; i != count; ++i) {
      const auto at = (i ^ 1) * std::size_t{16};  // entry 0 of each pair is in the higher half
      h.put64(at, (first + i) * kApart);
      h.put64(at + 8, h.icm.iova | 3);
    }
    return h.with_mailbox(command_opcode::MAP_ICM, count, 1);
  }
  void fill(std::size_t count) {
    constexpr std::uint32_t kMost = 256;
    for (std::size_t i = 0; i < count; i += kMost) {
      ASSERT_EQ(map_chunks(i, static_cast<std::uint32_t>(std::min<std::size_t>(kMost, count - i))),
                OK);
    }
    ASSERT_EQ(icm().chunks(), count);
  }
  const Icm& icm() { return h.device.icm(IcmGroup::QUEUE_CONTEXTS); }
};

TEST_F(JingzhaoIcmChunks, UnmappingTheMiddleOfOneKeepsTheBound) {
  fill(Icm::kChunksMax);
  for (std::uint64_t i = 0; i != 8; ++i) {
    EXPECT_EQ(h.unmap(1, i * kApart + Icm::kPage, 1), BAD_PARAM);
  }
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
  EXPECT_EQ(icm().pages(), 3 * Icm::kChunksMax);
  EXPECT_EQ(h.unmap(1, 0, 1), OK) << "the first page of one makes none";
  EXPECT_EQ(h.unmap(1, 5 * kApart, 3), OK);
  EXPECT_EQ(h.unmap(1, kApart + Icm::kPage, 1), OK) << "there is room for one";
  EXPECT_EQ(h.unmap(1, 2 * kApart + Icm::kPage, 1), BAD_PARAM);
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
}

TEST_F(JingzhaoIcmChunks, UnmappingNoPagesDividesNothing) {
  fill(1);
  EXPECT_EQ(h.unmap(1, Icm::kPage, 0), OK);
  EXPECT_EQ(icm().chunks(), 1u);
}

TEST_F(JingzhaoIcmChunks, ACommandThatHasNoRoomMapsNothing) {
  fill(Icm::kChunksMax - 1);
  EXPECT_EQ(map_chunks(0, 256), OK) << "they replace others";
  EXPECT_EQ(map_chunks(Icm::kChunksMax - 2, 3), BAD_PARAM) << "one replaces, two are new";
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax - 1);
  EXPECT_EQ(map_chunks(Icm::kChunksMax - 2, 2), OK);
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
}

TEST(JingzhaoSmallIcm, EntriesThatLeaveTheChipStandInTheHostsMemory) {
  RawHost h({.icm_cache = 1});
  h.init();
  for (std::uint32_t line = 0; line != 3; ++line) {
    h.clear_mailbox();
    h.put64(0x18, 8 * line);
    for (std::size_t i = 0; i != 8; ++i) {
      const auto place = 0x20 + i / 4 * 0x20 + (3 - i % 4) * 8;
      h.put64(place, std::uint64_t{8 * line + i + 1} << 12);
    }
    ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 8), OK);
  }
  // The first two lines were evicted and written back, in order.
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  for (std::uint64_t i = 0; i != 16; ++i) {
    EXPECT_EQ(util::load_be64(mtt + 8 * i), (i + 1) << 12) << i;
  }
  EXPECT_EQ(util::load_be64(mtt + 8 * 16), 0u) << "the third is still on chip";
}

// 3.2.3.1 says "page size". The device accepts bytes, as the author's driver gives, or log2 minus
// 12.
TEST_F(JingzhaoIcm, APageSizeIsBytesOrTheirLogarithmAbove12) {
  h.init();
  const auto install = [&](std::uint32_t page_size, std::uint64_t length) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::key, 1);
    entry.set(mpt_entry::page_size, page_size);
    entry.set(mpt_entry::length, length);
    h.put(entry.bytes());
    const auto status = h.with_mailbox(command_opcode::SW2HW_MPT, 1);
    (void)h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1});
    return status;
  };
  // The longest region that is accepted shows the page size: it has kMaxPages pages.
  constexpr std::uint64_t kPages = limits::kMaxPages;
  for (const auto& [page_size, log] : {std::pair{0u, 12u},
                                       {1u, 13u},
                                       {19u, 31u},
                                       {0x1000u, 12u},
                                       {0x2000u, 13u},
                                       {0x80000000u, 31u}}) {
    EXPECT_EQ(install(page_size, kPages << log), OK) << page_size;
    EXPECT_EQ(install(page_size, (kPages << log) + 1), BAD_PARAM) << page_size;
  }
  for (const auto page_size : {20u, 0x800u, 0xFFFu, 0x1001u, 0x3000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(install(page_size, 1), BAD_PARAM) << page_size;
  }
}

TEST_F(JingzhaoIcm, AnMptEntryIsInstalledOnceUnderTheIndexOfItsKey) {
  h.init();
  put_mpt(0x41);  // index 1 of 64 entries, variant 1
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 2), BAD_PARAM) << "another index";
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 64), BAD_PARAM) << "beyond the table";
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), OK);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM) << "is installed";
  EXPECT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1}), OK);
  EXPECT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1}), BAD_PARAM);
}

TEST_F(JingzhaoIcm, ARegionThatWrapsOrHasTooManyPagesIsRefused) {
  h.init();
  put_mpt(1);
  h.put64(0x10, ~0ull);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM);
  put_mpt(1);
  h.put64(0x18, (std::uint64_t{1} << 30) + 1);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM) << "2^18 pages and one";
  h.put32(0x04, 9);  // page size: 2 MiB
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), OK);
}

TEST(IcmMap, MappingsReplaceAndCutEachOther) {
  std::vector<std::byte> memory(16 * 4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0x10000, 0x100000, 8);
  icm.map(0x12000, 0x10A000, 2);
  EXPECT_EQ(icm.pages(), 8u);
  EXPECT_EQ(icm.chunks(), 3u);
  std::array<std::byte, 3 * 4096> out;
  memory[0x1FFF] = std::byte{1};
  memory[0xA000] = std::byte{2};
  memory[0x4000] = std::byte{3};
  ASSERT_TRUE(icm.read(0x11FFF, std::span(out).first(0x2002)));
  EXPECT_EQ(out[0], std::byte{1});
  EXPECT_EQ(out[1], std::byte{2});
  EXPECT_EQ(out[0x2001], std::byte{3});
  icm.unmap(0x11000, 1);
  EXPECT_FALSE(icm.read(0x10FFF, std::span(out).first(2)));
  EXPECT_TRUE(icm.mapped(0x12000, 0x6000));
  icm.unmap(0, 0x1000);
  EXPECT_EQ(icm.chunks(), 0u);
}

TEST(IcmCacheTest, AnEntryThatWasChangedGoesBackWhenItsPlaceIsNeeded) {
  std::vector<std::byte> memory(4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0, 0x100000, 1);
  IcmCache cache({.icm = &icm, .base = 0, .entry_size = 64}, 2, nullptr);
  cache.make(0).bytes[0] = std::byte{7};
  EXPECT_EQ(memory[0], std::byte{0});
  cache.get(1);
  cache.get(2);
  cache.get(3);
  EXPECT_EQ(memory[0], std::byte{7});
  EXPECT_EQ(cache.counters().write_backs, 1u) << "the others were not changed";
  EXPECT_EQ(cache.counters().evictions, 2u);
  EXPECT_EQ(cache.counters().misses, 3u);
  EXPECT_EQ(cache.get(0).bytes[0], std::byte{7});
  EXPECT_EQ(cache.get(100).bytes, nullptr) << "not mapped";
}

}  // namespace
}  // namespace softhca::jingzhao::test

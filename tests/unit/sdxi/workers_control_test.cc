// Worker threads while the control thread starts, stops, resets, and takes memory away.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>
#include <vector>

#include "sdxi/budget.h"
#include "sdxi/workers_machine.h"
#include "util/log.h"

namespace softhca::sdxi::test {
namespace {

using namespace std::chrono_literals;
using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;

TEST_P(WorkersTest, MemoryThatWasUnmappedIsNotTouchedAnyMore) {
  constexpr std::size_t kSize = 1 << 20;
  constexpr Iova kAt = Iova{1} << 40;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto from = m_->allocate(kSize, 4096);
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(m_->device->dma().map(kAt, kSize, memory, pcie::DmaAccess::kReadWrite));
    const auto number = static_cast<ContextNumber>(round + 1);
    const auto& c = m_->start_context(number);
    keep_busy(c, from, kAt, kSize, 60);
    std::this_thread::sleep_for(std::chrono::microseconds(100 + round * 10));
    ASSERT_TRUE(m_->device->dma().unmap(kAt, kSize));
    ::mprotect(memory, kSize, PROT_NONE);  // a late access kills the process
    ASSERT_TRUE(until([&] { return state(c) == cxtv::CXTV_ERR_FN || read_index(c) == 60; }));
    ::mprotect(memory, kSize, PROT_READ | PROT_WRITE);
  }
  ::munmap(memory, kSize);
}

TEST_P(WorkersTest, NoMemoryIsWrittenAfterAReset) {
  constexpr std::size_t kSize = 256 << 10;
  const auto from = m_->allocate(kSize), to = m_->allocate(4 * kSize);
  for (int round = 0; round < 10; ++round) {
    for (ContextNumber i = 0; i < 4; ++i) {
      const auto& c = m_->start_context(static_cast<ContextNumber>(i + 1));
      keep_busy(c, from, to + i * kSize, kSize, 40);
    }
    std::this_thread::sleep_for(300us);
    m_->device->reset();
    EXPECT_TRUE(stays_untouched(m_->host(to), 4 * kSize));
    m_->power_on();
    m_->activate();
  }
}

TEST_P(WorkersTest, InD3hotNothingIsWritten) {
  constexpr std::size_t kSize = 256 << 10;
  const auto from = m_->allocate(kSize), to = m_->allocate(kSize);
  m_->fill(from, kSize, 7);
  const auto& c = m_->start_context(1, kCopies);
  for (unsigned k = 1; k < kCopies; ++k) push(c, copy(from, to, kSize));
  m_->doorbell(1, kCopies - 1);
  m_->step();
  std::this_thread::sleep_for(200us);
  for (const std::uint16_t state : {3, 0}) {
    m_->device->write_config(pcie::ConfigSpace::kPowerManagementAt + 4,
                             std::as_bytes(std::span(&state, 1)));
    if (state == 0) break;
    EXPECT_TRUE(stays_untouched(m_->host(to), kSize));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(m_->step(), util::kNever);
    EXPECT_EQ(this->state(c), cxtv::CXTV_RUN);
  }
  // One more copy: on a busy machine the others may have been done before D3hot.
  ASSERT_TRUE(execute(c, copy(from, to, kSize)));
  EXPECT_TRUE(m_->equal(from, to, kSize));
  EXPECT_EQ(m_->records(), 0u);
}

TEST_P(WorkersTest, ContextsStopAndStartWhileTheyWork) {
  constexpr std::size_t kSize = 128 << 10;
  const auto from = m_->allocate(kSize), to = m_->allocate(4 * kSize);
  std::vector<Machine::Context> contexts;
  for (ContextNumber i = 1; i <= 4; ++i) contexts.push_back(m_->start_context(i, 128));
  for (int round = 0; round < 20; ++round) {
    for (const auto& c : contexts) keep_busy(c, from, to + (c.number - 1u) * kSize, kSize, 30);
    std::this_thread::sleep_for(200us);
    const bool hard = round % 2 == 1;
    ASSERT_TRUE(execute(m_->context(0), stop(1, 4, hard)));
    ASSERT_TRUE(execute(m_->context(0), sync(spec::sync_filter::SYNC_STOP, 1, 4)));
    EXPECT_TRUE(stays_untouched(m_->host(to), 4 * kSize));
    for (const auto& c : contexts) {
      EXPECT_TRUE(state(c) == cxtv::CXTV_STOP_SW || (hard && state(c) == cxtv::CXTV_ERR_FN));
      // Read_Index names the first descriptor not yet executed (SDXI 4.2.3).
      if (read_index(c) > 0) {
        EXPECT_FALSE(m_->valid(c, read_index(c) - 1));
      }
      if (read_index(c) < load(c.write_index)) {
        EXPECT_TRUE(m_->valid(c, read_index(c)));
      }
      for (auto i = read_index(c); i < load(c.write_index); ++i)
        m_->at<spec::dsc_header>(m_->slot(c, i)).set(spec::dsc_header::vl, 0);
      store(c.write_index, read_index(c));
      m_->set_state(c, cxtv::CXTV_STOP_SW);
    }
    ASSERT_TRUE(execute(m_->context(0), start(1, 4)));
  }
}

TEST_P(WorkersTest, TheFunctionStopsWhileTheyWork) {
  constexpr std::size_t kSize = 128 << 10;
  const auto from = m_->allocate(kSize), to = m_->allocate(4 * kSize);
  std::vector<Machine::Context> contexts;
  for (ContextNumber i = 1; i <= 4; ++i) {
    contexts.push_back(m_->start_context(i, 128));
    keep_busy(contexts.back(), from, to + (i - 1u) * kSize, kSize, 100);
  }
  m_->request(spec::fn_gsr::GSRV_STOP_SF);
  ASSERT_TRUE(until([&] { return m_->gsv() == spec::fn_gsv::GSV_STOP; }));
  EXPECT_TRUE(stays_untouched(m_->host(to), 4 * kSize));
  for (const auto& c : contexts) EXPECT_EQ(state(c), cxtv::CXTV_STOP_FN);
}

// Whenever the workers go on they may begin a turn, and the next stop waits for that.
TEST_P(WorkersTest, AFunctionStopStopsThemOnceForManyContexts) {
  constexpr ContextNumber kContexts = 40;
  std::vector<Machine::Context> contexts;
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    contexts.push_back(m_->start_context(i));
    ASSERT_TRUE(execute(contexts.back(), nop()));
  }
  ASSERT_TRUE(all_rest());
  m_->request(spec::fn_gsr::GSRV_STOP_SF);
  const auto& gate = group_.workers().gate();
  const auto stops = gate.stops();
  const auto work = m_->device->work_done();
  m_->step();
  for (const auto& c : contexts) EXPECT_EQ(state(c), cxtv::CXTV_STOP_FN) << c.number;
  EXPECT_LE(gate.stops() - stops, 2u);
  EXPECT_GE(m_->device->work_done() - work, kGateCost / kBytesPerUnit);
}

// SDXI 4.3.1: after an update and a sync the old entry is no longer used.
TEST_P(WorkersTest, AKeyThatWasUpdatedIsNotUsedAnyMore) {
  constexpr std::size_t kSize = 256 << 10;
  const auto from = m_->allocate(kSize), to = m_->allocate(kSize);
  for (ContextNumber i = 1; i <= 20; ++i) {
    const auto& c = m_->start_context(i, kCopies);
    m_->akey(c, 3).set(spec::akey_ent::vl, 1);
    for (unsigned k = 1; k < kCopies; ++k) push(c, copy(from, to, kSize, 0, 3));
    m_->doorbell(i, kCopies - 1);
    m_->step();
    std::this_thread::sleep_for(200us);
    store(c.akeys + 3 * spec::akey_ent::kSize, 0);
    auto update = admin_range<spec::dsc_akey_upd>(spec::admin_subtype::DSC_AKEY_UPD, i, i);
    edit<spec::dsc_akey_upd>(update).set(spec::dsc_akey_upd::akey_start, 3);
    edit<spec::dsc_akey_upd>(update).set(spec::dsc_akey_upd::akey_end, 3);
    submit(m_->context(0), update);
    ASSERT_TRUE(execute(m_->context(0), sync(spec::sync_filter::SYNC_AKEY, i, i)));
    EXPECT_TRUE(stays_untouched(m_->host(to), kSize));
    // One more copy: on a busy machine the others may have been done before the update.
    submit(c, copy(from, to, kSize, 0, 3));
    ASSERT_TRUE(until([&] { return state(c) == cxtv::CXTV_ERR_FN; }));
    EXPECT_TRUE(is_all({m_->host(to), kSize}, std::byte{0x5a}));
  }
  EXPECT_GE(m_->device->contexts().statistics().errors, 20u);
}

TEST_P(WorkersTest, AnotherFunctionsMemoryIsLeftAloneWhenThatIsReset) {
  constexpr std::size_t kSize = 256 << 10;
  Machine other(group_);
  other.activate();
  const auto there = other.allocate(kSize), from = m_->allocate(kSize);
  for (ContextNumber i = 1; i <= 10; ++i) {
    other.make_rkeys();
    other.rkey(1).set(spec::rkey_ent::req_sfunc, m_->device->sfunc());
    other.rkey(1).set(spec::rkey_ent::vl, 1);
    const auto& c = m_->start_context(i, kCopies);
    const auto entry = m_->akey(c, 2);
    entry.set(spec::akey_ent::vl, 1);
    entry.set(spec::akey_ent::tgt_sfunc, other.device->sfunc());
    entry.set(spec::akey_ent::rkey, 1);
    for (unsigned k = 1; k < kCopies; ++k) push(c, copy(from, there, kSize, 0, 2));
    m_->doorbell(i, kCopies - 1);
    m_->step();
    std::this_thread::sleep_for(200us);
    other.device->reset();
    EXPECT_TRUE(stays_untouched(other.host(there), kSize));
    // One more copy: on a busy machine the others may have been done before the reset.
    submit(c, copy(from, there, kSize, 0, 2));
    ASSERT_TRUE(until([&] { return state(c) == cxtv::CXTV_ERR_FN; }));
    EXPECT_TRUE(is_all({other.host(there), kSize}, std::byte{0x5a}));
    other.power_on();
    other.activate();
  }
  EXPECT_GE(m_->device->contexts().statistics().errors, 10u);
}

}  // namespace
}  // namespace softhca::sdxi::test

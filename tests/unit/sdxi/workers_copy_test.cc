// Large copies of one context, shared by several worker threads. Except for time, the result equals
// that of one worker.
#include <sys/mman.h>

#include <ctime>
#include <vector>

#include "fabric/allocation_counter.h"
#include "sdxi/shared_copy.h"
#include "sdxi/workers_machine.h"
#include "util/log.h"
#include "util/unordered_access.h"

namespace softhca::sdxi::test {
namespace {

using ent = spec::errlog_hd_ent;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr Iova kElsewhere = Iova{1} << 40;

class WorkersCopyTest : public WorkersTest {
 protected:
  /// Processor time used by each worker.
  std::vector<std::chrono::nanoseconds> times() {
    std::vector<std::chrono::nanoseconds> times;
    for (unsigned i = 0; i < GetParam(); ++i) {
      clockid_t clock;
      timespec time{};
      ::pthread_getcpuclockid(group_.workers().native_handle(i), &clock);
      ::clock_gettime(clock, &time);
      times.push_back(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
    }
    return times;
  }
  /// Executes `d` without a pause between completion and return.
  bool execute_at_once(const Machine::Context& c, Descriptor d) {
    const auto block = m_->attach_completion(d);
    submit(c, d);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (unsigned looks = 1; !done(block); ++looks) {
      if (looks % 1024 == 0) m_->step();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
};

INSTANTIATE_TEST_SUITE_P(Workers, WorkersCopyTest, ::testing::Values(2u, 4u));

TEST_P(WorkersCopyTest, OneContextKeepsSeveralWorkersBusy) {
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(16 * kMiB, 4096), to = m_->allocate(16 * kMiB, 4096);
  m_->fill(from, 16 * kMiB, 1);
  std::size_t busy = 0;
  // Other processes may occupy the processors.
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (busy < 2 && std::chrono::steady_clock::now() < end) {
    const auto before = times();
    for (int i = 0; i < 8; ++i) push(c, copy(from, to, 16 * kMiB));
    ASSERT_TRUE(execute(c, copy(from, to, 16 * kMiB)));
    const auto now = times();
    std::chrono::nanoseconds sum{};
    for (std::size_t i = 0; i < now.size(); ++i) sum += now[i] - before[i];
    busy = 0;
    for (std::size_t i = 0; i < now.size(); ++i) busy += (now[i] - before[i]) * 10 > sum;
  }
  EXPECT_GE(busy, 2u);
  EXPECT_TRUE(m_->equal(from, to, 16 * kMiB));
}

TEST_P(WorkersCopyTest, CopiesThatDependOnEachOtherAreDoneInTheirOrder) {
  constexpr std::size_t kSize = 3 * kMiB + 12345;
  const auto& c = m_->start_context(1);
  std::array<Iova, 4> at{};
  for (auto& buffer : at) buffer = m_->allocate(kSize + 64) + 7;
  for (unsigned round = 0; round < 10; ++round) {
    m_->fill(at[0], kSize, round);
    push(c, copy(at[0], at[1], kSize));
    push(c, copy(at[1], at[2], kSize));
    ASSERT_TRUE(execute(c, copy(at[2], at[3], kSize)));
    EXPECT_TRUE(m_->equal(at[0], at[3], kSize));
  }
  EXPECT_EQ(m_->records(), 0u);
}

// SDXI 5.6: data are visible before the completion.
TEST_P(WorkersCopyTest, TheCompletionComesAfterAllChunks) {
  constexpr std::size_t kSize = kMiB;
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(kSize, 4096), to = m_->allocate(kSize, 4096);
  for (unsigned round = 0; round < 200; ++round) {
    std::memset(m_->host(from), static_cast<int>(round), kSize);
    ASSERT_TRUE(execute_at_once(c, copy(from, to, kSize)));
    ASSERT_TRUE(m_->equal(from, to, kSize)) << round;
  }
}

TEST_P(WorkersCopyTest, LargeBlocksThatAreRepeatedArriveWhole) {
  constexpr std::uint32_t kUnits = 256, kCopies = 5;
  constexpr std::size_t kBlock = kUnits * 4096;
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(kBlock, 4096), to = m_->allocate(kCopies * kBlock, 4096);
  m_->fill(from, kBlock, 5);
  ASSERT_TRUE(execute(c, repeat_copy(from, to, kUnits, kCopies)));
  for (std::size_t i = 0; i < kCopies; ++i) {
    EXPECT_TRUE(m_->equal(from, to + i * kBlock, kBlock)) << i;
  }
}

// The document leaves the result open (SDXI 5.6), but no thread may read what another has
// overwritten.
TEST_P(WorkersCopyTest, OverlappingBuffersAreCopiedFromTheBeginningOn) {
  constexpr std::size_t kSize = 4 * kMiB, kBack = 4096;
  const auto& c = m_->start_context(1);
  const auto to = m_->allocate(kSize + kBack, 4096);
  std::vector<std::byte> expected(kSize);
  for (unsigned round = 0; round < 25; ++round) {
    m_->fill(to, kSize + kBack, round);
    std::memcpy(expected.data(), m_->host(to) + kBack, kSize);
    ASSERT_TRUE(execute(c, copy(to + kBack, to, kSize)));
    ASSERT_EQ(0, std::memcmp(expected.data(), m_->host(to), kSize)) << round;
  }
}

// Work is charged to the context, whichever thread does it.
TEST_P(WorkersCopyTest, TheContextPaysForAllOfItsCopy) {
  constexpr std::size_t kSize = 12 * kMiB;
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(kSize), to = m_->allocate(kSize);
  ASSERT_TRUE(execute(c, nop()));
  const auto before = m_->device->contexts().statistics().bytes;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(execute(c, copy(from, to, kSize)));
  const auto cost = kSize + m_->device->options().descriptor_bytes;
  EXPECT_EQ(m_->device->contexts().statistics().bytes - before, 3 * cost);
}

TEST_P(WorkersCopyTest, LargeCopiesAllocateNothing) {
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(4 * kMiB), to = m_->allocate(4 * kMiB);
  ASSERT_TRUE(execute_at_once(c, copy(from, to, 4 * kMiB)));
  std::array<Descriptor, 8> descriptors;
  descriptors.fill(copy(from, to, 4 * kMiB));
  const auto before = fabric::allocation_count();
  for (const auto& d : descriptors) ASSERT_TRUE(execute_at_once(c, d));
  EXPECT_EQ(fabric::allocation_count(), before);
}

TEST_P(WorkersCopyTest, IdleWorkersStopLookingForCopiesToShare) {
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(16 * kMiB), to = m_->allocate(16 * kMiB);
  ASSERT_TRUE(execute(c, copy(from, to, 16 * kMiB)));
  EXPECT_TRUE(all_rest());
}

/// Result of a copy beyond the end of a mapping.
struct Ending {
  std::vector<std::byte> record, target;
  std::uint64_t read_index;
  bool er;
  bool operator==(const Ending&) const = default;
};

/// A copy of `size` bytes to a mapping of `reach` bytes.
Ending copy_too_far(Machine& m, std::size_t reach, std::size_t size) {
  std::vector<std::byte> target(size, std::byte{0xee});
  EXPECT_TRUE(m.device->dma().map(kElsewhere, reach, target.data(), pcie::DmaAccess::kReadWrite));
  const auto& c = m.start_context(5);
  const auto from = m.allocate(size, 4096);
  m.fill(from, size, 5);
  auto d = copy(from, kElsewhere, size);
  const auto block = m.attach_completion(d);
  m.push(c, nop());
  m.push(c, d);
  m.push(c, nop());
  m.doorbell(5, 3);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (m.records() == 0 && std::chrono::steady_clock::now() < end) {
    m.step();
    std::this_thread::sleep_for(20us);
  }
  EXPECT_TRUE(m.device->dma().unmap(kElsewhere, reach));
  EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(0, std::memcmp(target.data(), m.host(from), reach)) << "what could be copied";
  const auto record = m.bytes(m.record_at(0), 64);
  return {{record.begin(), record.end()}, target, m.read_index(c), m.er(block)};
}

TEST_P(WorkersCopyTest, AnErrorInALaterChunkIsReportedAsByOneThread) {
  constexpr std::size_t kSize = 6 * kMiB;
  for (const auto reach : {300 * 1024 + std::size_t{64}, kMiB, 5 * kMiB + 4096 + 8}) {
    FunctionGroup alone_group, group;
    Machine alone(alone_group, {}), together(group, {.workers = GetParam()});
    alone.activate();
    together.activate();
    const auto expected = copy_too_far(alone, reach, kSize);
    const auto ending = copy_too_far(together, reach, kSize);
    EXPECT_EQ(ending.record, expected.record) << reach;
    EXPECT_EQ(ending.read_index, 2u);
    EXPECT_TRUE(ending.er);
    EXPECT_TRUE(ending == expected) << "nothing is written beyond " << reach;
  }
}

TEST_P(WorkersCopyTest, MemoryThatWasUnmappedIsNotTouchedByHelpersEither) {
  constexpr std::size_t kSize = 4 * kMiB;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto from = m_->allocate(kSize, 4096);
  for (int round = 0; round < 40; ++round) {
    const bool source = round % 2 != 0;
    ASSERT_TRUE(m_->device->dma().map(kElsewhere, kSize, memory, pcie::DmaAccess::kReadWrite));
    const auto& c = m_->start_context(static_cast<ContextNumber>(round + 1));
    keep_busy(c, source ? kElsewhere : from, source ? from : kElsewhere, kSize, 40);
    std::this_thread::sleep_for(std::chrono::microseconds(200 + round * 20));
    ASSERT_TRUE(m_->device->dma().unmap(kElsewhere, kSize));
    ::mprotect(memory, kSize, PROT_NONE);  // a late access kills the process
    ASSERT_TRUE(until([&] { return state(c) == cxtv::CXTV_ERR_FN || read_index(c) == 40; }));
    ::mprotect(memory, kSize, PROT_READ | PROT_WRITE);
  }
  ::munmap(memory, kSize);
}

TEST_P(WorkersCopyTest, OtherMappingsChangeWhileACopyIsCarriedOut) {
  const auto& c = m_->start_context(1);
  const auto from = m_->allocate(16 * kMiB), to = m_->allocate(16 * kMiB);
  std::vector<std::byte> other(4096);
  m_->fill(from, 16 * kMiB, 9);
  for (int i = 0; i < 5; ++i) push(c, copy(from, to, 16 * kMiB));
  m_->doorbell(1, 5);
  ASSERT_TRUE(until([&] {
    EXPECT_TRUE(m_->device->dma().map(kElsewhere, 4096, other.data(), pcie::DmaAccess::kRead));
    EXPECT_TRUE(m_->device->dma().unmap(kElsewhere, 4096));
    return read_index(c) == 5;
  }));
  EXPECT_TRUE(m_->equal(from, to, 16 * kMiB));
  EXPECT_EQ(m_->records(), 0u);
}

// SDXI 4.3.5: a hard stop aborts the copy. The part that was copied is one contiguous piece from
// the beginning. It is not always a number of whole chunks: the last ones are too few to be shared,
// and end with the turn.
TEST_P(WorkersCopyTest, AHardStopLeavesOnePieceOfACopyFromItsBeginning) {
  constexpr std::size_t kSize = 24 * kMiB;
  const auto from = m_->allocate(kSize, 4096), to = m_->allocate(kSize, 4096);
  std::memset(m_->host(from), 0x11, kSize);
  unsigned aborted = 0;
  // Scheduling decides whether a stop comes between two chunks.
  for (ContextNumber number = 1; number <= 20 || (aborted == 0 && number <= 100); ++number) {
    const auto& c = m_->start_context(number);
    std::memset(m_->host(to), 0xee, kSize);
    auto d = copy(from, to, kSize);
    const auto block = m_->attach_completion(d);
    submit(c, d);
    m_->step();
    std::this_thread::sleep_for(std::chrono::microseconds(50 * (number % 20)));
    ASSERT_TRUE(execute(m_->context(0), stop(number, number, true)));
    ASSERT_TRUE(execute(m_->context(0), sync(spec::sync_filter::SYNC_STOP, number, number)));
    const auto* target = m_->host(to);
    const auto* end = static_cast<const std::byte*>(std::memchr(target, 0xee, kSize));
    const auto copied = end == nullptr ? kSize : static_cast<std::size_t>(end - target);
    EXPECT_TRUE(is_all({target + copied, kSize - copied}, std::byte{0xee}));
    EXPECT_EQ(state(c) == cxtv::CXTV_ERR_FN, m_->er(block));
    // On a busy machine no thread may have begun the copy.
    EXPECT_TRUE(m_->er(block) || copied == kSize || copied == 0);
    EXPECT_TRUE(stays_untouched(m_->host(to), kSize));
    aborted += m_->er(block);
  }
  EXPECT_GT(aborted, 0u);
}

/// Two idle workers, and a thread in place of a third.
class CopyTogetherTest : public ::testing::Test {
 protected:
  CopyTogetherTest() { workers_.start(2); }
  std::uint64_t copy(std::uint64_t size, std::uint64_t turn) {
    return workers_.copy_together({to_.data(), from_.data(), size, size}, turn, thread_);
  }

  static constexpr std::uint64_t kChunk = SharedCopy::kChunk;
  Workers workers_;
  ThreadState thread_{.worker = true, .pool = &workers_};
  std::vector<std::byte> from_ = std::vector<std::byte>(20 * kMiB, std::byte{0x11});
  std::vector<std::byte> to_ = std::vector<std::byte>(20 * kMiB, std::byte{0xee});
};

TEST_F(CopyTogetherTest, ACopyGoesOnBeyondItsTurnWhileNoOtherContextWaits) {
  EXPECT_EQ(copy(3 * kMiB, 4 * kChunk), 3 * kMiB);
  EXPECT_EQ(copy(20 * kMiB, 4 * kChunk), 16 * kMiB);
  EXPECT_EQ(copy(20 * kMiB, 18 * kMiB), 18 * kMiB);
  EXPECT_TRUE(is_all(std::span(to_).first(18 * kMiB), std::byte{0x11}));
  EXPECT_TRUE(is_all(std::span(to_).subspan(18 * kMiB), std::byte{0xee}));
}

TEST_F(CopyTogetherTest, ItEndsWithItsTurnWhenTheControlThreadWaits) {
  workers_.gate().pause();
  EXPECT_EQ(copy(16 * kMiB, 4 * kChunk), 4 * kChunk);
  EXPECT_EQ(copy(16 * kMiB, 5 * kChunk + 1), 6 * kChunk);
  workers_.gate().resume();
  EXPECT_TRUE(is_all(std::span(to_).subspan(6 * kChunk), std::byte{0xee}));
}

TEST_F(CopyTogetherTest, ItEndsWithItsTurnIfOtherRingsAreWatched) {
  thread_.watches = true;
  EXPECT_EQ(copy(16 * kMiB, 4 * kChunk), 4 * kChunk);
}

TEST_F(CopyTogetherTest, ACopyThatIsSmallIsOneWorkersOwn) {
  EXPECT_EQ(copy(2 * kChunk - 1, 2 * kChunk), 0u);
  EXPECT_TRUE(is_all(to_, std::byte{0xee}));
  EXPECT_EQ(copy(2 * kChunk, kChunk), 2 * kChunk);
}

/// Rings, keys and states change during the copies.
TEST_P(WorkersCopyTest, AHostileProducerOfLargeCopiesHarmsNeitherItsNeighbourNorTheProcess) {
  constexpr std::size_t kReach = 128 << 10, kScratch = 24 * kMiB;
  Machine victim(group_);
  victim.activate();
  const auto bytes = victim.bytes(Machine::kBase, kReach);
  const std::vector<std::byte> untouched(bytes.begin(), bytes.end());
  util::set_log_level(util::LogLevel::kError);
  std::uint64_t random = 0x9e3779b97f4a7c15u + GetParam();
  const auto next = [&random] {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return random;
  };
  const auto scratch = m_->allocate(kScratch, 4096);
  for (int round = 0; round < 20; ++round) {
    const auto start = m_->allocate(8, 4096);  // the structures of this round come next
    for (ContextNumber i = 1; i <= 3; ++i) {
      const util::UnorderedAccess hostile;
      const auto& c = m_->start_context(i, 64);
      for (int k = 0; k < 20; ++k) {
        push(c, copy(scratch + next() % (kScratch / 2), scratch + next() % (kScratch / 2),
                     1 + next() % (4 * kMiB)));
      }
      m_->doorbell(i, 20);
    }
    m_->step();
    for (int k = 0; k < 60; ++k) {
      store(start + next() % (kReach / 8) * 8, next());
      m_->doorbell(static_cast<ContextNumber>(next() % 5), next() % 64);
      if (k % 16 == 0) m_->write(next() % 0x200 * 8, next());
      m_->step();
    }
    m_->device->reset();
    EXPECT_TRUE(stays_untouched(m_->host(scratch), kScratch));
    m_->power_on();
    const util::UnorderedAccess hostile;
    m_->activate();
  }
  util::set_log_level(util::LogLevel::kInfo);
  EXPECT_TRUE(std::equal(untouched.begin(), untouched.end(), bytes.begin()));
  EXPECT_EQ(victim.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

}  // namespace
}  // namespace softhca::sdxi::test

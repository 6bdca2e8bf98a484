// Attacks of a guest with a data mover.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "neighbours.h"
#include "server/served_test.h"

namespace softhca::neighbours {
namespace {

using driver::sdxi::Descriptor;
using server::Mover;

using MoverNeighbours = Neighbours;
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(MoverNeighbours);

/// Descriptors of this process that are memory files.
std::set<int> memory_files() {
  std::set<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("/memfd:")) files.insert(std::stoi(entry.path().filename()));
  }
  return files;
}

// Finding 13: an update of all contexts while many of them have work.
TEST_P(MoverNeighbours, UpdatesOfAllContextsAreWorkThatTheirGuestPays) {
  {
    Mover hostile(socket(kHostileMover));
    std::vector<std::unique_ptr<driver::sdxi::Context>> contexts;
    for (int i = 0; i < 1000; ++i) {
      auto made = hostile.function->make_context(16);
      if (!made) break;
      contexts.push_back(*std::move(made));
      EXPECT_TRUE(contexts.back()->enqueue({{Descriptor::nop()}}));
    }
    EXPECT_GT(contexts.size(), 900u);
    std::uint64_t updates = 0;
    for (const auto end = util::monotonic_now() + kFlood; util::monotonic_now() < end;) {
      std::vector<Descriptor> all(
          4, Descriptor::update_contexts(spec::sdxi::tgt_pcd::UPD_CTL, 0, 4095));
      must(hostile.function->administer(all));
      updates += all.size();
    }
    EXPECT_GT(updates, 0u);
  }
  expect_unharmed();
}

/// Waits until the function has taken all descriptors of the context.
bool empties(const driver::sdxi::Context& context) {
  const auto end = util::monotonic_now() + 60s;
  while (context.read_index() != context.write_index() && util::monotonic_now() < end) {
    std::this_thread::yield();
  }
  return context.read_index() == context.write_index();
}

// An interrupt is a system call, which may wake a thread. It costs as much as a copy of 16 KiB, so
// that another context has some seventeen times as many NOPs executed. The device itself notes how
// far the interrupts are: this thread may look long after the NOPs have ended.
TEST_P(MoverNeighbours, InterruptsAreWorkThatTheirContextPays) {
  constexpr std::uint32_t kEach = 60'000, kRounds = 5, kPiece = 100;
  std::uint64_t raised = 0;
  {
    Mover hostile(socket(kHostileMover));
    // Pieces of interrupts: all that were raised, and those before and after the NOPs.
    auto pieces = hostile.memory({}), before = hostile.memory({}), after = hostile.memory({});
    const auto storm = must(hostile.function->make_context(1 << 16));
    const auto other = must(hostile.function->make_context(1 << 16));
    const auto vector = must(storm->akeys().use_interrupt(1));
    std::vector<Descriptor> interrupts;
    for (std::uint32_t i = 1; i <= kEach; ++i) {
      interrupts.push_back(Descriptor::interrupt(vector));
      if (i % kPiece != 0) continue;
      constexpr auto kAdd = spec::sdxi::atomic_subtype::DSC_ATM_UADD;
      interrupts.push_back(Descriptor::atomic(kAdd, {pieces.iova()}, 8, 1));
    }
    std::vector<Descriptor> nops(kEach, Descriptor::nop());
    nops.front() = Descriptor::copy({before.iova()}, {pieces.iova()}, 8);
    nops.back() = Descriptor::copy({after.iova()}, {pieces.iova()}, 8);
    for (std::uint32_t round = 0; round != kRounds; ++round) {
      ASSERT_TRUE(storm->enqueue(interrupts) && other->enqueue(nops));
      ASSERT_TRUE(empties(*other));
      raised +=
          kPiece * (util::load_le64(after.bytes().data()) - util::load_le64(before.bytes().data()));
      ASSERT_TRUE(empties(*storm));
    }
    EXPECT_GT(hostile.host->interrupts(1), 0u);
  }
  EXPECT_LT(raised, kEach * kRounds / 2) << "while as many NOPs as there are interrupts ended";
  expect_unharmed();
}

// Finding 2, in a thread of its own (SDXI workers).
TEST_P(MoverNeighbours, MemoryThatGoesFromUnderAWorkerEndsItsOwnersSessionAlone) {
  for (int round = 0; round < 5; ++round) {
    const auto child = ::fork();
    if (child == 0) {
      // The child uses only the path, because the parent's threads do not exist in it.
      try {
        const auto others = memory_files();
        Mover hostile(socket(kHostileMover));
        auto from = hostile.memory(std::byte{1}, 1 << 20), to = hostile.memory({}, 1 << 20);
        for (int i = 0; i < 200; ++i) {
          (void)hostile.context->copy({to.iova()}, {from.iova()}, 1 << 20);
        }
        for (const int file : memory_files()) {
          if (!others.contains(file)) (void)!::ftruncate(file, 0);
        }
        ::usleep(100'000);
      } catch (...) {
      }
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(mover_.advances(3, 20s));
  }
  {
    Mover next(socket(kHostileMover));
    EXPECT_TRUE(next.copy());
  }
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours

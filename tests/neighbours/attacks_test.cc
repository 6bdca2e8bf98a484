// Attacks of a guest program that bypasses its driver, from tests/guest. Each life of the device
// runs in its own process.
#include "attacks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "neighbours.h"
#include "util/log.h"

namespace softhca::neighbours {
namespace {

class AttackNeighbours : public Neighbours {
 protected:
  /// Runs an attack with the hostile guest's NIC until its deeds are done, each life in its own
  /// process.
  void attack(void (*run)(guest::Life&)) {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    auto& tally = *new (page) guest::Tally;
    tally.most = std::ranges::find(guest::attacks(), run, &guest::Attack::run)->deeds;
    std::mt19937_64 random(8);
    const auto latest = util::monotonic_now() + 600s;
    while (!tally.is_full() && util::monotonic_now() < latest) {
      const auto seed = random();
      const auto child = ::fork();
      if (child == 0) live(run, seed, tally);
      while (::waitpid(child, nullptr, WNOHANG) == 0) {
        if (util::monotonic_now() > latest) ::kill(child, SIGKILL);
        std::this_thread::sleep_for(5ms);
      }
    }
    EXPECT_TRUE(tally.is_full()) << tally.deeds << " of " << tally.most;
    ::munmap(page, 4096);
    // The honest clients must go on, whatever the attack left behind.
    EXPECT_TRUE(honest_.advances(3, 20s) && mover_.advances(3, 20s));
    expect_unharmed();
  }

 private:
  [[noreturn]] void live(void (*run)(guest::Life&), std::uint64_t seed, guest::Tally& tally) const {
    util::set_log_level(util::LogLevel::kError);
    try {
      guest::Life life(hostile(), "", seed, tally);
      run(life);
    } catch (const std::exception&) {
    }
    guest::Life::end();
  }
};
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(AttackNeighbours);

// Finding 8.
TEST_P(AttackNeighbours, FillingSendQueuesInErrorWhileTheyAreFlushedDelaysNoNeighbour) {
  attack(guest::flush_for_ever);
}

// Findings 9 and 12.
TEST_P(AttackNeighbours, RandomCommandsInAllSlotsAreRefusedOrDoneForTheirGuestAlone) {
  attack(guest::give_random_commands);
}

// Suspected in the review: up to 32 MiB for each of 30 slots.
TEST_P(AttackNeighbours, LongOutputsOfCommandsAreWrittenInPieces) {
  attack(guest::ask_for_long_outputs);
}

// Finding 10. Objects that go with their client are freed in pieces.
TEST_P(AttackNeighbours, AsManyQueuePairsAndKeysAsThereCanBeGoInPieces) {
  attack(guest::make_objects_and_go);
}

TEST_P(AttackNeighbours, TimersOfMicrosecondsLeaveTimeForOthers) {
  attack(guest::make_timers_expire);
}

TEST_P(AttackNeighbours, DatagramsThatAreMultipliedAreWorkThatTheirGuestPays) {
  attack(guest::multiply_datagrams);
}

// Finding 6: the memory is reached by messages, which its owner rarely answers. An access may wait
// 100 ms for an answer, and the owner sends other messages meanwhile. Receiving them still counts
// as one turn.
TEST_P(AttackNeighbours, WithdrawingMemoryInUseDelaysNoNeighbour) {
  attack(guest::withdraw_memory);
}

TEST_P(AttackNeighbours, DoorbellsOfAnyQueueAreThoseOfTheirGuest) { attack(guest::ring_doorbells); }

TEST_P(AttackNeighbours, RandomRegistersAndMovedCommandQueuesHarmNoNeighbour) {
  attack(guest::write_registers);
}

}  // namespace
}  // namespace softhca::neighbours

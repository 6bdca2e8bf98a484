// The device against the reference model. Both execute the same random, partly illegal sequences of
// descriptors on several contexts and functions, and keys and tables change in between. After each
// sequence memory, completion blocks, indices, states, interrupts and error logs must agree.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "sdxi/model_arena.h"

namespace softhca::sdxi::test {
namespace {

/// The ways in which the device can work.
constexpr std::array<Arena::Mode, 4> kModes{{
    {},
    {.turn_bytes = 2048},
    {.workers = 2, .turn_bytes = 4096},
    {.turn_bytes = 4096, .remote = true},
}};

void check(std::uint64_t sequences, std::uint64_t seed, const Arena::Mode& mode,
           bool show_progress = false) {
  util::set_log_level(util::LogLevel::kError);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Arena arena(seed, mode);
  const auto step = std::max<std::uint64_t>(sequences / 20, 1);
  auto next = step;
  while (arena.sequences() < sequences && !::testing::Test::HasFailure()) {
    arena.act();
    if (!show_progress || arena.sequences() < next) continue;
    next += step;
    std::printf("%10lu sequences, %10lu descriptors, %8lu error records agree\n", arena.sequences(),
                arena.descriptors(), arena.errors());
    std::fflush(stdout);
  }
  if (::testing::Test::HasFailure()) {
    std::printf("after %lu sequences of seed %lu, the last of them\n%s", arena.sequences(), seed,
                arena.last().c_str());
  }
  util::set_log_level(util::LogLevel::kInfo);
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const auto* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(ModelTest, RandomSequencesAgree) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) check(5000, seed, kModes[0]);
}

TEST(ModelTest, RandomSequencesAgreeInShortTurns) { check(4000, 3, kModes[1]); }

TEST(ModelTest, RandomSequencesAgreeWithWorkers) { check(3000, 4, kModes[2]); }

TEST(ModelTest, RandomSequencesAgreeWithMemoryBehindAPeer) { check(3000, 5, kModes[3]); }

/// `make model`: COUNT sequences of SEED, a quarter in each mode.
TEST(ModelTest, DISABLED_AMillionRandomSequencesAgree) {
  const auto seed = from_environment("SEED", 2022);
  for (const auto& mode : kModes) {
    check(from_environment("COUNT", 1000000) / kModes.size(), seed, mode, true);
  }
}

}  // namespace
}  // namespace softhca::sdxi::test

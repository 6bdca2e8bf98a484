// The device against the reference model: the same random, partly illegal sequences of descriptors
// on several contexts and functions, with keys and tables that change between them. Memory,
// completion blocks, indices, states, interrupts and error logs must agree after each.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "sdxi/model_arena.h"

namespace softhca::sdxi::test {
namespace {

void check(std::uint64_t sequences, std::uint64_t seed, bool show_progress = false) {
  util::set_log_level(util::LogLevel::kError);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Arena arena(seed);
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

TEST(ModelTest, TwentyThousandRandomSequencesAgree) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) check(5000, seed);
}

/// `make model`: COUNT sequences of SEED.
TEST(ModelTest, DISABLED_AMillionRandomSequencesAgree) {
  check(from_environment("COUNT", 1000000), from_environment("SEED", 2022), true);
}

}  // namespace
}  // namespace softhca::sdxi::test

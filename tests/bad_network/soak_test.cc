// Hours of virtual time on a bad network: see README.md.
//
// BAD_NETWORK_SECONDS, BAD_NETWORK_SEED: the virtual time and the seed of the long test.
#include <gtest/gtest.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "campaign.h"
#include "fabric/fault_table.h"
#include "util/log.h"

namespace softhca::bad_network {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// Processor time of this process.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

Outcome run(std::uint64_t seed, std::uint64_t seconds) {
  // Faults make devices warn.
  util::set_log_level(util::LogLevel::kError);
  try {
    return Campaign(seed).run(std::chrono::seconds(seconds));
  } catch (const std::runtime_error& error) {
    ADD_FAILURE() << "seed " << seed << ": " << error.what();
    return {};
  }
}

void print(const Outcome& outcome) {
  const auto line = [](const char* what, std::uint64_t count) {
    std::printf("%14llu %s\n", static_cast<unsigned long long>(count), what);
  };
  const auto& flows = outcome.flows;
  line("requests posted", flows.posted);
  line("succeeded", flows.succeeded);
  line("failed: retries exceeded", flows.failed);
  line("flushed", flows.flushed);
  line("atomics executed", flows.atomics);
  line("messages received", flows.messages);
  line("bytes of data compared", flows.bytes);
  line("datagrams sent", outcome.datagrams);
  line("datagrams received", outcome.datagrams_received);
  line("of these twice", outcome.duplicates);
  line("connections broken and made again", outcome.breaks);
  line("storms", outcome.storms);
  for (std::size_t i = 0; i != outcome.rules.size(); ++i) {
    const auto name = fabric::kind_of(static_cast<fabric::FaultAction>(i)).name;
    std::printf("%14llu %s rules, fired %llu times\n",
                static_cast<unsigned long long>(outcome.rules[i]), std::string(name).c_str(),
                static_cast<unsigned long long>(outcome.fired[i]));
  }
  line("frames", outcome.frames);
  std::printf("hash of the frames: %016llx\n", static_cast<unsigned long long>(outcome.hash));
}

TEST(BadNetworkSoak, ASeedIsReplayedFrameByFrame) {
  constexpr std::uint64_t kSeconds = 120;
  const auto first = run(7, kSeconds), again = run(7, kSeconds), other = run(8, kSeconds);
  EXPECT_EQ(first.hash, again.hash);
  EXPECT_TRUE(first == again);
  EXPECT_NE(first.hash, other.hash);
}

TEST(BadNetworkSoak, EachRequestCompletesOnceAndEachAtomicIsExecutedOnce) {
  const auto seconds = number_of("BAD_NETWORK_SECONDS", 3600);
  const auto before = processor_seconds();
  const auto outcome = run(number_of("BAD_NETWORK_SEED", 2026), seconds);
  if (HasFailure()) return;
  print(outcome);
  std::printf("%llu s of virtual time in %.1f s of processor time\n",
              static_cast<unsigned long long>(seconds), processor_seconds() - before);
  const auto& flows = outcome.flows;
  EXPECT_EQ(flows.posted, flows.succeeded + flows.failed + flows.flushed);
  // Everything that the ledger is for has happened.
  EXPECT_GT(flows.atomics, seconds / 2);
  EXPECT_GT(flows.messages, seconds / 2);
  EXPECT_GT(flows.failed, 0u);
  EXPECT_GT(flows.flushed, 0u);
  EXPECT_GE(outcome.breaks, outcome.storms / 4);
  EXPECT_GT(outcome.datagrams_received, 0u);
  EXPECT_LT(outcome.datagrams_received, outcome.datagrams);
  EXPECT_GT(outcome.duplicates, 0u);
  for (std::size_t i = 0; i != outcome.fired.size(); ++i) {
    EXPECT_GT(outcome.fired[i], 0u) << fabric::kind_of(static_cast<fabric::FaultAction>(i)).name;
  }
}

}  // namespace
}  // namespace softhca::bad_network

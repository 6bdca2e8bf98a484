// Thousands of clients that are killed at any moment, and the server itself. A killed client must
// leave nothing behind, and the other clients must keep working.
//
// SOAK_KILLS, SOAK_RESTARTS, SOAK_SEED: see README.md.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "eventually.h"
#include "honest.h"
#include "loop_hca.h"
#include "server/served_test.h"
#include "victim.h"

namespace softhca::soak {
namespace {

using namespace std::chrono_literals;
using neighbours::Honest;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// Resources of a process that a client could leak.
struct Holdings {
  std::size_t descriptors = 0;
  std::size_t maps = 0;
  std::uint64_t heap = 0;  ///< bytes allocated
  std::uint64_t resident = 0;
};

/// The sum of all values of that name.
std::uint64_t sum_of(const nlohmann::json& tree, const std::string& name) {
  std::uint64_t sum = 0;
  if (!tree.is_object()) return 0;
  for (const auto& [key, value] : tree.items()) {
    sum += key == name ? value.get<std::uint64_t>() : sum_of(value, name);
  }
  return sum;
}

class Soak : public ::testing::TestWithParam<bool> {
 protected:
  // Devices: the victims' first, the honest one's last.
  static constexpr std::size_t kVictims = 4;
  static constexpr std::size_t kHonest = 4;

  Soak() { server_ = std::make_unique<server::ServedProgram>(devices(), options()); }

  static std::vector<std::string> devices() {
    return {"connectx,name=hca0", "connectx,name=hca1", "sdxi,name=mover0,guest=red",
            "sdxi,name=mover1,guest=blue", "connectx,name=honest"};
  }
  static std::vector<std::string> options() {
    std::vector<std::string> words{"--measure-turns"};
    if (GetParam()) words.emplace_back("--isolate");
    return words;
  }
  static Work work_for(std::size_t device, std::uint64_t random) {
    constexpr Work kAny[] = {Work::kMaps, Work::kHalfMessages, Work::kInterrupts};
    const auto choice = random % 6;
    if (choice < 3) return kAny[choice];
    return device < 2 ? Work::kRdmaWrites : Work::kSdxiCopies;
  }
  std::unique_ptr<Victim> victim(std::size_t device) {
    return std::make_unique<Victim>(server_->socket(device), work_for(device, random_()),
                                    random_());
  }
  /// Usually short, so that a client may be killed while it connects.
  util::Duration some_time() {
    return std::chrono::microseconds(random_() % (random_() % 4 == 0 ? 20'000 : 3'000));
  }
  /// Kills `count` clients, one after the other, four at a time.
  void kill_clients(std::uint64_t count) {
    std::vector<std::unique_ptr<Victim>> victims(kVictims);
    for (std::uint64_t i = 0; i != count; ++i) {
      const auto device = random_() % kVictims;
      victims[device].reset();
      victims[device] = victim(device);
      std::this_thread::sleep_for(some_time());
    }
  }

  Holdings holdings() const {
    return {.descriptors = server_->descriptors(),
            .maps = server_->maps(),
            .heap = sum_of(server_->inspect("loop"), "heap_bytes"),
            .resident = server_->resident_bytes()};
  }
  /// The figures once everything left by clients is released: when they no longer drop.
  Holdings settled() const {
    auto least = holdings();
    for (int unchanged = 0; unchanged != 20; ++unchanged) {
      std::this_thread::sleep_for(10ms);
      auto now = holdings();
      if (now.descriptors < least.descriptors || now.maps < least.maps) unchanged = 0;
      // The connection that asked last is closed outside of the loop, and may still count.
      now.descriptors = std::min(now.descriptors, least.descriptors);
      now.maps = std::min(now.maps, least.maps);
      least = now;
    }
    return least;
  }
  static bool is_as(const Holdings& now, const Holdings& before) {
    return now.descriptors <= before.descriptors && now.maps <= before.maps &&
           now.heap <= before.heap + kHeapSlack && now.resident <= before.resident + kResidentSlack;
  }
  void expect_as(const Holdings& before, std::uint64_t kills) const {
    auto now = settled();
    // A server that gets no processor releases what clients left when it gets one.
    eventually([&] {
      if (is_as(now, before)) return true;
      now = settled();
      return false;
    });
    std::printf("%8llu kills: %zu descriptors, %zu maps, heap %llu KiB, resident %llu KiB\n",
                static_cast<unsigned long long>(kills), now.descriptors, now.maps,
                static_cast<unsigned long long>(now.heap >> 10),
                static_cast<unsigned long long>(now.resident >> 10));
    std::fflush(stdout);
    EXPECT_LE(now.descriptors, before.descriptors);
    EXPECT_LE(now.maps, before.maps);
    EXPECT_LE(now.heap, before.heap + kHeapSlack);
    EXPECT_LE(now.resident, before.resident + kResidentSlack);
  }

  /// Queues, batches and tables keep the capacity of their fullest moment.
  static constexpr std::uint64_t kHeapSlack = 1 << 20;
  static constexpr std::uint64_t kResidentSlack = 64 << 20;

  std::mt19937_64 random_{number_of("SOAK_SEED", 2026)};
  std::unique_ptr<server::ServedProgram> server_;
};

INSTANTIATE_TEST_SUITE_P(Servers, Soak, ::testing::Bool(), [](const auto& isolated) {
  return isolated.param ? "Isolated" : "OneProcess";
});

TEST_P(Soak, ClientsThatAreKilledLeaveNothingBehind) {
  const auto kills = number_of("SOAK_KILLS", 200);
  Honest honest("honest", neighbours::rdma_writes(server_->socket(kHonest), 1));
  ASSERT_TRUE(honest.advances(3, 20s));
  kill_clients(100);  // warms up one-time allocations
  const auto before = settled();
  std::printf("before: %zu descriptors, %zu maps, heap %llu KiB\n", before.descriptors, before.maps,
              static_cast<unsigned long long>(before.heap >> 10));
  const auto batch = std::max<std::uint64_t>(50, kills / 20);
  for (std::uint64_t done = 0; done < kills && !HasFailure();) {
    const auto now = std::min(batch, kills - done);
    kill_clients(now);
    done += now;
    expect_as(before, done);
    EXPECT_TRUE(honest.advances(3, 20s)) << "the honest client stands still";
  }
  honest.end();
  EXPECT_TRUE(server_->alive());
  for (std::size_t device = 0; device < 2; ++device) {
    const neighbours::LoopHca next(server_->socket(device), 9, 4096);
  }
  for (std::size_t device = 2; device < 4; ++device) {
    server::Mover next(server_->socket(device));
    EXPECT_TRUE(next.copy());
  }
}

TEST_P(Soak, AServerThatIsKilledComesBackWithCleanDevices) {
  const auto restarts = number_of("SOAK_RESTARTS", 4);
  for (std::uint64_t i = 1; i <= restarts && !HasFailure(); ++i) {
    std::vector<std::unique_ptr<Victim>> victims;
    for (std::size_t device = 0; device != kVictims; ++device) victims.push_back(victim(device));
    std::this_thread::sleep_for(some_time());
    server_->kill_and_restart();
    victims.clear();
    for (const std::size_t device : {random_() % 2, 2 + random_() % 2}) {
      const auto host = server::connect_host(server_->socket(device));
      std::uint16_t command = 1;
      host->read_config(4, std::as_writable_bytes(std::span(&command, 1)));
      EXPECT_EQ(command, 0u) << "as after power-on";
    }
    neighbours::LoopHca hca(server_->socket(kHonest), 1, 4096);
    server::Mover mover(server_->socket(2));
    EXPECT_TRUE(mover.copy());
    if (restarts >= 20 && i % (restarts / 10) == 0) {
      std::printf("%8llu restarts\n", static_cast<unsigned long long>(i));
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace softhca::soak

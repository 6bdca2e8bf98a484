// Cost of SDXI descriptors through driver/sdxi, each next to a reference:
// - copies next to memcpy of the same buffers
// - the rate of empty descriptors next to a bare ring of messages
// - the time from doorbell to completion next to a cache line that bounces between processors
// - two workers next to one, and next to two threads with memcpy
// All but the last use one worker, on another processor than the producer if there are two.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "peers.h"
#include "program.h"
#include "sdxi_station.h"

namespace softhca::bench {
namespace {

using driver::sdxi::Descriptor;

constexpr unsigned kSharers = 8;
constexpr std::size_t kSharedPiece = 256 << 10;
constexpr std::size_t kTogether = std::size_t{16} << 20;
/// Copies of `together` for one figure.
constexpr std::uint64_t kTogetherTimes = 128;
constexpr unsigned kProducerCpu = 0;
constexpr unsigned kWorkerCpu = 1;

/// Stations are made when a case first needs them.
struct Stage {
  SdxiStation& one_worker() { return make(one_worker_, 1, 1); }
  SdxiStation& two_workers() { return make(two_workers_, 2, kSharers, kShared); }
  /// The same contexts with one worker, as the reference.
  SdxiStation& one_of_two() { return make(one_of_two_, 1, kSharers, kShared); }
  /// One context with large copies.
  SdxiStation& together() { return make(together_, 2, 1, kTogether); }
  SdxiStation& alone() { return make(alone_, 1, 1, kTogether); }
  SdxiStation& in_line() { return make(in_line_, 0, 1); }
  /// Larger than caches.
  SdxiStation& large() { return make(large_, 1, 1, std::size_t{64} << 20); }
  Echo& echo() {
    if (!echo_) echo_.emplace(kWorkerCpu);
    return *echo_;
  }

 private:
  static constexpr std::size_t kShared = kSharers * kSharedPiece;

  static SdxiStation& make(std::unique_ptr<SdxiStation>& station, unsigned workers,
                           unsigned contexts, std::size_t memory = 1 << 20) {
    const auto first = workers == 1 ? kWorkerCpu : kProducerCpu;
    if (!station) station = std::make_unique<SdxiStation>(workers, contexts, first, memory);
    return *station;
  }

  std::unique_ptr<SdxiStation> one_worker_;
  std::unique_ptr<SdxiStation> two_workers_;
  std::unique_ptr<SdxiStation> one_of_two_;
  std::unique_ptr<SdxiStation> together_;
  std::unique_ptr<SdxiStation> alone_;
  std::unique_ptr<SdxiStation> in_line_;
  std::unique_ptr<SdxiStation> large_;
  std::optional<Echo> echo_;
};

/// Copies of all of the station's memory, cut into pieces of `size` bytes.
std::vector<Descriptor> copies(SdxiStation& station, std::size_t size) {
  std::vector<Descriptor> pattern;
  for (std::size_t at = 0; at < station.source().bytes().size(); at += size) {
    pattern.push_back(
        Descriptor::copy({station.target().iova(at)}, {station.source().iova(at)}, size));
  }
  return pattern;
}

/// The same with an interrupt after each, as the Linux driver requests them.
std::vector<Descriptor> copies_with_interrupts(SdxiStation& station, std::size_t size) {
  std::vector<Descriptor> pattern;
  for (const auto& copy : copies(station, size)) {
    pattern.push_back(copy);
    pattern.push_back(station.interrupt().fence());
  }
  return pattern;
}

void memcpys(SdxiStation& station, std::size_t size, std::uint64_t n) {
  const auto whole = station.source().bytes().size();
  for (std::uint64_t i = 0, at = 0; i < n; ++i, at = (at + size) % whole) {
    std::memcpy(&station.target().bytes()[at], &station.source().bytes()[at], size);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // no overlap of copies
  }
}

/// Each of the station's contexts copies its own piece repeatedly. Returns nanoseconds for one
/// piece.
double share(SdxiStation& station) {
  constexpr std::uint64_t kEach = 1000;
  const auto took = station.burst(copies(station, kSharedPiece), kEach);
  return std::chrono::duration<double, std::nano>(took).count() / kEach / kSharers;
}

/// GB/s of one context. Each copy is as large as the station's memory.
double stream_asleep(SdxiStation& station) {
  const auto took = station.burst(copies(station, kTogether), kTogetherTimes);
  return static_cast<double>(kTogether * kTogetherTimes) / static_cast<double>(took.count());
}

/// GB/s of memcpy of the station's memory by threads on separate processors. Each copies its own
/// part.
double memcpy_by_threads(SdxiStation& station, unsigned count) {
  using Clock = std::chrono::steady_clock;
  const auto part = kTogether / count;
  const auto first_cpu = count == 1 ? kWorkerCpu : kProducerCpu;
  std::latch start(count);
  std::vector<Clock::time_point> begins(count), ends(count);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      pin_this_thread(first_cpu + i);
      start.arrive_and_wait();
      begins[i] = Clock::now();
      for (std::uint64_t n = 0; n < kTogetherTimes; ++n) {
        std::memcpy(&station.target().bytes()[i * part], &station.source().bytes()[i * part], part);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      ends[i] = Clock::now();
    });
  }
  for (auto& thread : threads) thread.join();
  const std::chrono::nanoseconds took =
      *std::ranges::max_element(ends) - *std::ranges::min_element(begins);
  return static_cast<double>(kTogether * kTogetherTimes) / static_cast<double>(took.count());
}

struct Case {
  std::string name;
  std::string unit;
  std::function<void(Stage&, std::uint64_t)> run;
  std::function<double(double ns)> value;
  std::string peer_name;
  std::function<void(Stage&, std::uint64_t)> peer;
};

using PickStation = SdxiStation& (Stage::*)();

Case bandwidth_case(std::string name, PickStation station, std::size_t size) {
  return {.name = std::move(name),
          .unit = "GB/s",
          .run =
              [=](Stage& stage, std::uint64_t n) {
                (stage.*station)().stream(copies((stage.*station)(), size), n);
              },
          .value = [size](double ns) { return static_cast<double>(size) / ns; },
          .peer_name = "memcpy",
          .peer = [=](Stage& stage, std::uint64_t n) { memcpys((stage.*station)(), size, n); }};
}

std::vector<Case> all_cases() {
  static constexpr std::size_t kPiece = 64;
  const auto rate = [](double ns) { return 1e3 / ns; };
  const auto nop = [](SdxiStation& station, std::uint64_t n) {
    station.stream(std::array{Descriptor::nop()}, n);
  };
  const auto small_copy = [](SdxiStation& station, std::uint64_t n) {
    station.stream(
        std::array{Descriptor::copy({station.target().iova()}, {station.source().iova()}, kPiece)},
        n);
  };
  return {
      bandwidth_case("sdxi.copy.1MiB", &Stage::one_worker, std::size_t{1} << 20),
      bandwidth_case("sdxi.copy.64KiB", &Stage::one_worker, std::size_t{64} << 10),
      bandwidth_case("sdxi.copy.4KiB", &Stage::one_worker, std::size_t{4} << 10),
      bandwidth_case("sdxi.copy.64MiB", &Stage::large, std::size_t{64} << 20),
      {"sdxi.copy.64KiB.interrupts", "us",
       [](Stage& stage, auto n) {
         auto& station = stage.one_worker();
         station.stream(copies_with_interrupts(station, std::size_t{64} << 10), 2 * n);
       },
       [](double ns) { return ns / 1e3; }, "without interrupts",
       [](Stage& stage, auto n) {
         auto& station = stage.one_worker();
         station.stream(copies(station, std::size_t{64} << 10), n);
       }},
      {"sdxi.nop.rate", "M/s", [=](Stage& stage, auto n) { nop(stage.one_worker(), n); }, rate,
       "message ring", [](Stage& stage, auto n) { stage.echo().send(n, 1); }},
      // The reference is a ring that publishes its index once per batch, with the batch size of
      // driver/sdxi.
      {"sdxi.nop.rate.batch", "M/s", [=](Stage& stage, auto n) { nop(stage.one_worker(), n); },
       rate, "message ring by 32",
       [](Stage& stage, auto n) { stage.echo().send(n, SdxiStation::kBatch); }},
      {"sdxi.copy.64B.rate",
       "M/s",
       [=](Stage& stage, auto n) { small_copy(stage.one_worker(), n); },
       rate,
       "",
       {}},
      {"sdxi.copy.64B.latency", "ns",
       [](Stage& stage, auto n) {
         auto& station = stage.one_worker();
         station.one_by_one(
             Descriptor::copy({station.target().iova()}, {station.source().iova()}, kPiece), n);
       },
       [](double ns) { return ns; }, "cache line ping-pong",
       [](Stage& stage, auto n) { stage.echo().ping_pong(n); }},
      bandwidth_case("sdxi.copy.1MiB.in_line", &Stage::in_line, std::size_t{1} << 20),
      bandwidth_case("sdxi.copy.4KiB.in_line", &Stage::in_line, std::size_t{4} << 10),
      {"sdxi.nop.in_line",
       "M/s",
       [=](Stage& stage, auto n) { nop(stage.in_line(), n); },
       rate,
       "",
       {}},
      {"sdxi.copy.64B.in_line",
       "M/s",
       [=](Stage& stage, auto n) { small_copy(stage.in_line(), n); },
       rate,
       "",
       {}},
  };
}

Result measure(const Case& c, Stage& stage, const Options& options) {
  const auto figure = [&](const auto& run) {
    return [&] { return c.value(time_of(options, [&](std::uint64_t n) { run(stage, n); })); };
  };
  return measure_rounds(options, c.name, c.unit, figure(c.run), c.peer_name,
                        c.peer ? figure(c.peer) : std::function<double()>());
}

/// The producer sleeps in these cases, because on two processors there is no third for it.
struct CaseAsleep {
  std::string name;
  std::string unit;
  std::function<double(Stage&)> value;
  std::string peer_name;
  std::function<double(Stage&)> peer;
};

std::vector<CaseAsleep> cases_asleep() {
  const auto value = [](SdxiStation& station) { return kSharedPiece / share(station); };
  return {
      {"sdxi.two_workers", "GB/s", [=](Stage& stage) { return value(stage.two_workers()); },
       "one worker", [=](Stage& stage) { return value(stage.one_of_two()); }},
      {"sdxi.copy.16MiB.together", "GB/s",
       [](Stage& stage) { return stream_asleep(stage.together()); }, "two memcpy threads",
       [](Stage& stage) { return memcpy_by_threads(stage.together(), 2); }},
      {"sdxi.copy.16MiB.gain", "x",
       [](Stage& stage) {
         const auto together = stream_asleep(stage.together());
         return together / stream_asleep(stage.alone());
       },
       "two memcpy threads",
       [](Stage& stage) {
         const auto together = memcpy_by_threads(stage.together(), 2);
         return together / memcpy_by_threads(stage.together(), 1);
       }},
  };
}

std::vector<Result> run(const Options& options) {
  Stage stage;
  std::vector<Result> results;
  // These cases need the producer's thread unpinned.
  for (const auto& c : cases_asleep()) {
    if (!options.wants(c.name) || options.operations != 0) continue;
    results.push_back(measure_rounds(
        options, c.name, c.unit, [&] { return c.value(stage); }, c.peer_name,
        [&] { return c.peer(stage); }));
  }
  pin_this_thread(kProducerCpu);
  for (const auto& c : all_cases()) {
    if (!options.wants(c.name)) continue;
    if (options.operations != 0) {
      c.run(stage, options.operations);
    } else {
      results.push_back(measure(c, stage, options));
    }
  }
  return results;
}

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  for (const auto& c : cases_asleep()) names.push_back(c.name);
  for (const auto& c : all_cases()) names.push_back(c.name);
  return run_program(argc, argv,
                     {.name = "sdxi_bench",
                      .text = "SDXI descriptors in this process, through the driver.",
                      .names = names,
                      .run = [&] { return run(options); }},
                     options);
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

// What many connected queue pairs cost two ConnectX devices in this process: memory for each of
// them at rest, and 8-byte RDMA WRITEs on one of them, or each on another.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <iostream>
#include <string>
#include <vector>

#include "crowd.h"
#include "measure.h"
#include "pair.h"
#include "report.h"
#include "util/log.h"

namespace softhca::bench {
namespace {

struct Options {
  unsigned rounds = 7;
  unsigned milliseconds = 200;
  std::size_t queue_pairs = 10'000;
  std::string json;
  std::string only;
  std::uint64_t operations = 0;
};

constexpr std::size_t kMemory = 1 << 20;
constexpr std::size_t kSmall = 8;
/// Messages that are posted, each with its own doorbell, before completions are polled; and of each
/// connection's messages one in so many is signaled. The same as write.8B.rate of connectx_bench.
constexpr std::uint64_t kSignalEvery = Crowd::kQueueDepth;
/// Messages that a connection has in flight when all have as many.
constexpr std::uint64_t kBurst = 16;

class Bench {
 public:
  explicit Bench(std::size_t connections) : pair_(kMemory) {
    pair_.count_device_memory();
    crowd_ = std::make_unique<Crowd>(pair_, connections);
  }

  /// Bytes of device memory for each QP, both ends counted: after connecting, after each
  /// connection has sent a message, after all have sent kBurst at once. All are at rest then.
  std::array<double, 3> measure_memory() {
    const auto connected = memory_per_qp();
    finish_all();
    const auto after_one = memory_per_qp();
    for (std::uint64_t i = 0; i != kBurst; ++i) {
      for (std::size_t link = 0; link != crowd_->size(); ++link) {
        crowd_->write_inline(link, bytes_, false);
      }
    }
    finish_all();
    pair_.count_device_memory(false);
    return {connected, after_one, memory_per_qp()};
  }

  void stop_counting() { pair_.count_device_memory(false); }

  /// All on one of the connections; one acknowledgement stands for many of them.
  void write_on_one(std::uint64_t n) {
    for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
      for (std::uint64_t i = 1; i <= kSignalEvery; ++i) {
        crowd_->write_inline(0, bytes_, i == kSignalEvery);
      }
      pair_.wait(pair_.a(), 1);
    }
  }

  /// Each on another of the first `connections`, with an acknowledgement of its own.
  void write_on_each(std::size_t connections, std::uint64_t n) {
    for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
      std::size_t signaled = 0;
      for (std::uint64_t i = 0; i != kSignalEvery; ++i) {
        if (next_ >= connections) {
          next_ = 0;
          ++lap_;
        }
        const bool is_signaled = (lap_ + next_) % kSignalEvery == 0;
        crowd_->write_inline(next_++, bytes_, is_signaled);
        signaled += is_signaled;
      }
      pair_.wait(pair_.a(), signaled);
    }
  }
  /// Each waits for its completion, which its acknowledgement brings: no two share one, so that
  /// what differs is the QP alone. On one connection, or each on another.
  void write_to_completion(bool on_each, std::uint64_t n) {
    for (std::uint64_t i = 0; i != n; ++i) {
      crowd_->write_inline(on_each ? next_++ % crowd_->size() : 0, bytes_, true);
      pair_.wait(pair_.a(), 1);
    }
  }
  std::size_t connections() const { return crowd_->size(); }
  /// Makes every queue empty.
  void finish_all() {
    for (std::size_t link = 0; link != crowd_->size(); ++link) {
      crowd_->write_inline(link, bytes_, true);
      pair_.wait(pair_.a(), 1);
    }
    next_ = 0;
  }

 private:
  double memory_per_qp() const {
    return static_cast<double>(pair_.device_memory()) / static_cast<double>(2 * crowd_->size());
  }

  Pair pair_;
  std::unique_ptr<Crowd> crowd_;
  std::array<std::byte, kSmall> bytes_{};
  std::uint64_t lap_ = 0;
  std::size_t next_ = 0;
};

struct Case {
  std::string name;
  void (*run)(Bench&, std::uint64_t n);
};

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = {
      {"qps.write.8B.one", [](Bench& b, std::uint64_t n) { b.write_on_one(n); }},
      {"qps.write.8B.each_of_32",
       [](Bench& b, std::uint64_t n) { b.write_on_each(kSignalEvery, n); }},
      {"qps.write.8B.each", [](Bench& b, std::uint64_t n) { b.write_on_each(b.connections(), n); }},
      {"qps.write.8B.one.completion",
       [](Bench& b, std::uint64_t n) { b.write_to_completion(false, n); }},
      {"qps.write.8B.each.completion",
       [](Bench& b, std::uint64_t n) { b.write_to_completion(true, n); }},
  };
  return cases;
}

void run_one(const Options& options) {
  for (const auto& c : all_cases()) {
    if (c.name != options.only) continue;
    Bench bench(options.queue_pairs);
    bench.stop_counting();
    c.run(bench, options.operations);
    return;
  }
  throw std::runtime_error("no benchmark has that name");
}

void run(const Options& options) {
  util::set_log_level(util::LogLevel::kWarning);
  if (options.operations != 0) return run_one(options);
  Bench bench(options.queue_pairs);
  std::vector<Result> results;
  const auto [connected, after_one, after_burst] = bench.measure_memory();
  const auto memory = [&](std::string name, double bytes) {
    results.push_back({.name = std::move(name),
                       .unit = "B",
                       .values = {bytes},
                       .peer_name = "",
                       .peer_values = {}});
  };
  memory("qps.memory.connected", connected);
  memory("qps.memory.after_one", after_one);
  memory("qps.memory.after_burst", after_burst);
  for (const auto& c : all_cases()) {
    bench.finish_all();
    Result result{.name = c.name, .unit = "M/s", .values = {}, .peer_name = "", .peer_values = {}};
    for (unsigned round = 0; round < options.rounds; ++round) {
      show_progress(c.name, round, options.rounds);
      const auto batch = [&](std::uint64_t n) { c.run(bench, n); };
      const auto at_least = std::chrono::milliseconds(options.milliseconds);
      result.values.push_back(1e3 / time_per_operation(batch, at_least));
    }
    end_progress();
    results.push_back(std::move(result));
  }
  print(results);
  if (!options.json.empty()) write_json(results, options.json);
}

int main(int argc, char** argv) {
  CLI::App app{
      "What many connected queue pairs cost two ConnectX devices in this process: memory at rest, "
      "and 8-byte RDMA WRITEs on one of them, or each on another."};
  Options options;
  app.add_option("--queue-pairs", options.queue_pairs, "connections (10000)")
      ->check(CLI::Range(32, 100'000));
  app.add_option("--rounds", options.rounds, "figures per benchmark; the median counts (7)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--milliseconds", options.milliseconds, "at least so long per figure (200)");
  app.add_option("--json", options.json, "write the results here as well");
  app.add_option("--only", options.only, "with --operations: one benchmark, by its name");
  app.add_option(
         "--operations", options.operations,
         "do exactly so many operations of --only and print nothing: for instruction counts")
      ->needs("--only");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "qps_bench: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

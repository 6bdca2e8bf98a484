// Cost of many connected QPs of two ConnectX devices in this process: memory of each at rest, and
// 8-byte RDMA WRITEs on one connection or on each in turn.
#include <CLI/CLI.hpp>
#include <array>
#include <string>
#include <vector>

#include "crowd.h"
#include "pair.h"
#include "program.h"

namespace softhca::bench {
namespace {

constexpr std::size_t kMemory = 1 << 20;
constexpr std::size_t kSmall = 8;
/// Messages posted, each with its own doorbell, before completions are polled. One in this many
/// messages of a connection is signaled. As in write.8B.rate of connectx_bench.
constexpr std::uint64_t kSignalEvery = Crowd::kQueueDepth;
/// Messages in flight on each connection when all are busy.
constexpr std::uint64_t kBurst = 16;

class Bench {
 public:
  explicit Bench(std::size_t connections) : pair_(kMemory) {
    pair_.count_device_memory();
    crowd_ = std::make_unique<Crowd>(pair_, connections);
  }

  /// Device memory for each QP at rest, in bytes, both ends counted: after connecting, after each
  /// connection has sent a message, after all have sent kBurst concurrently.
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

  /// All on one of the connections. One acknowledgment covers many of them.
  void write_on_one(std::uint64_t n) {
    for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
      for (std::uint64_t i = 1; i <= kSignalEvery; ++i) {
        crowd_->write_inline(0, bytes_, i == kSignalEvery);
      }
      pair_.wait(pair_.a(), 1);
    }
  }

  /// Each message on the next of the first `connections`, with its own acknowledgment.
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
  /// Each message waits for its completion, and so for its own acknowledgment. That leaves the QP
  /// as the only difference between one connection and a new one each time.
  void write_to_completion(bool on_each, std::uint64_t n) {
    for (std::uint64_t i = 0; i != n; ++i) {
      crowd_->write_inline(on_each ? next_++ % crowd_->size() : 0, bytes_, true);
      pair_.wait(pair_.a(), 1);
    }
  }
  std::size_t connections() const { return crowd_->size(); }
  /// Drains every queue.
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

std::vector<Result> run(const Options& options, std::size_t queue_pairs) {
  Bench bench(queue_pairs);
  std::vector<Result> results;
  if (options.only.empty()) {
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
  }
  bench.stop_counting();
  for (const auto& c : all_cases()) {
    if (!options.wants(c.name)) continue;
    if (options.operations != 0) {
      c.run(bench, options.operations);
      break;
    }
    bench.finish_all();
    results.push_back(measure_rounds(options, c.name, "M/s", [&] {
      return 1e3 / time_of(options, [&](std::uint64_t n) { c.run(bench, n); });
    }));
  }
  return results;
}

int main(int argc, char** argv) {
  Options options;
  std::size_t queue_pairs = 10'000;
  std::vector<std::string> names;
  for (const auto& c : all_cases()) names.push_back(c.name);
  return run_program(
      argc, argv,
      {.name = "qps_bench",
       .text = "What many connected queue pairs cost two ConnectX devices in this process: memory "
               "at rest, and 8-byte RDMA WRITEs on one of them, or each on another.",
       .names = names,
       .run = [&] { return run(options, queue_pairs); },
       .add_options =
           [&](CLI::App& app) {
             app.add_option("--queue-pairs", queue_pairs, "connections (10000)")
                 ->check(CLI::Range(32, 100'000));
           }},
      options);
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

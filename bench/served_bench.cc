// How long a guest waits for a register read at `softhca serve`: next to idle guests, and next to
// two that keep writing 1 MiB messages to each other. All are vfio-user clients.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "loop_hca.h"
#include "program.h"
#include "report.h"
#include "server_process.h"

namespace softhca::bench {
namespace {

using neighbours::LoopHca;
using neighbours::must;
using namespace std::chrono_literals;

constexpr std::size_t kMessage = 1 << 20;
/// On few processors, a spinning guest would take the server's processor. Its queue holds more work
/// than the server does in that time.
constexpr auto kGuestSleep = 500us;
constexpr auto kReaderSleep = 200us;
constexpr auto kPatience = 10s;

/// A guest that keeps writing 1 MiB messages to another guest's memory, in its own thread.
class Guest {
 public:
  Guest(const std::string& socket, unsigned number)
      : hca_(socket, number, 2 * kMessage), qp_(hca_.make_qp()) {}
  ~Guest() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  void connect(const Guest& peer) {
    must(qp_->connect(peer.hca_.address_of(*peer.qp_), {.path_mtu = 4096}));
    peer_ = &peer.hca_;
  }
  /// Keeps its queue full from now on.
  void begin() {
    ending_ = false;
    thread_ = std::thread([this] {
      try {
        work();
      } catch (const std::exception& error) {
        error_ = error.what();
      }
    });
  }
  /// Waits until all is done. Throws the first error.
  void end() {
    ending_ = true;
    thread_.join();
    if (!error_.empty()) throw std::runtime_error(error_);
  }
  /// Completed messages.
  std::uint64_t done() const { return done_; }

 private:
  void work() {
    while (!ending_) {
      post();
      std::this_thread::sleep_for(kGuestSleep);
      collect();
    }
    for (const auto limit = util::monotonic_now() + kPatience; done_ != posted_; collect()) {
      if (util::monotonic_now() > limit) throw std::runtime_error("a message does not complete");
      std::this_thread::sleep_for(kGuestSleep);
    }
  }
  void post() {
    const auto piece = hca_.piece(0, kMessage);
    while (qp_->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                           .pieces = {&piece, 1},
                           .remote_address = peer_->iova(kMessage),
                           .rkey = peer_->key()}) == driver::PostStatus::kOk) {
      ++posted_;
    }
  }
  void collect() {
    std::array<driver::Completion, 64> done;
    const auto count = hca_.cq().poll(done);
    for (const auto& one : std::span(done).first(count)) {
      if (one.status != driver::WorkStatus::kSuccess) throw std::runtime_error("a message failed");
    }
    done_ += count;
  }

  LoopHca hca_;
  std::unique_ptr<driver::connectx::QueuePair> qp_;
  const LoopHca* peer_ = nullptr;
  std::uint64_t posted_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> ending_ = false;
  std::string error_;
  std::thread thread_;
};

/// Waits of a round, in microseconds.
struct Waits {
  double median, p99;
};

/// Register reads with pauses, for `time`.
Waits read_registers(driver::Host& host, std::chrono::milliseconds time) {
  std::vector<double> waits;
  const auto end = util::monotonic_now() + time;
  do {
    const auto start = util::monotonic_now();
    std::array<std::byte, 4> revision{};
    host.read_bar(0, 0, revision);
    waits.push_back(
        std::chrono::duration<double, std::micro>(util::monotonic_now() - start).count());
    if (host.lost()) throw std::runtime_error("the server has gone");
    std::this_thread::sleep_for(kReaderSleep);
  } while (util::monotonic_now() < end);
  std::ranges::sort(waits);
  return {waits[waits.size() / 2], waits[waits.size() * 99 / 100]};
}

/// A server, two guests that are each other's peers, and one guest that reads.
std::vector<Result> measure(const std::string& name, const Options& options,
                            const std::string& program, const std::vector<std::string>& words) {
  const auto time = std::chrono::milliseconds(options.milliseconds);
  const auto result = [&](const char* what, const char* unit, const char* peer) {
    return Result{
        .name = name + what, .unit = unit, .values = {}, .peer_name = peer, .peer_values = {}};
  };
  std::vector<Result> out = {result(".read", "us", "idle"), result(".read.p99", "us", "idle"),
                             result(".write.1MiB", "GB/s", "")};
  const ServerProcess server(
      program, {"connectx,guest=one", "connectx,guest=two", "connectx,guest=three"}, words);
  Guest one(server.socket(0), 1);
  Guest two(server.socket(1), 2);
  LoopHca reader(server.socket(2), 3, 4096);
  one.connect(two);
  two.connect(one);
  for (unsigned round = 0; round < options.rounds; ++round) {
    show_progress(name, round, options.rounds);
    const auto idle = read_registers(reader.host(), time);
    one.begin();
    two.begin();
    const auto before = one.done() + two.done();
    const auto start = util::monotonic_now();
    const auto loaded = read_registers(reader.host(), time);
    const std::chrono::duration<double, std::nano> took = util::monotonic_now() - start;
    const auto bytes = static_cast<double>((one.done() + two.done() - before) * kMessage);
    one.end();
    two.end();
    out[0].values.push_back(loaded.median);
    out[0].peer_values.push_back(idle.median);
    out[1].values.push_back(loaded.p99);
    out[1].peer_values.push_back(idle.p99);
    out[2].values.push_back(bytes / took.count());
  }
  end_progress();
  return out;
}

int main(int argc, char** argv) {
  Options options{.milliseconds = 1000, .json = {}, .only = {}};
  std::string program = SOFTHCA_PROGRAM;
  return run_program(
      argc, argv,
      {.name = "served_bench",
       .text = "How long register reads take beside two guests at full bandwidth.",
       .names = {},
       .run =
           [&] {
             auto results = measure("serve", options, program, {});
             std::ranges::move(measure("isolate", options, program, {"--isolate"}),
                               std::back_inserter(results));
             return results;
           },
       .where = "served",
       .add_options =
           [&](CLI::App& app) { app.add_option("--program", program, "the softhca to start"); }},
      options);
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

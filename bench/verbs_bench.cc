// Cost of RDMA WRITEs between two HCAs of a model in this process, through the verbs: JingZhao and
// ConnectX, measured in turns.
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/verbs/verbs.h"
#include "lab/lab.h"
#include "program.h"

namespace softhca::bench {
namespace {

namespace verbs = driver::verbs;

constexpr std::size_t kMemory = 1 << 20;
constexpr std::size_t kSmall = 8;
constexpr unsigned kDepth = 128;
/// One in this many messages is signaled, and so polled for.
constexpr std::uint64_t kSignalEvery = 32;

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// One end of the connection.
struct Side {
  explicit Side(verbs::Device& device)
      : memory(kMemory),
        pd(must(device.allocate_pd())),
        region(must(pd.register_memory(memory, driver::MemoryAccess::all()))),
        cq(must(device.create_cq(2 * kDepth))),
        qp(must(pd.create_qp({.send_cq = cq,
                              .receive_cq = cq,
                              .capacity = {.send_requests = kDepth,
                                           .send_pieces = 1,
                                           .inline_size = 64,
                                           .receive_requests = 1,
                                           .receive_pieces = 1}}))) {}

  std::vector<std::byte> memory;
  verbs::ProtectionDomain pd;
  verbs::MemoryRegion region;
  verbs::CompletionQueue cq;
  verbs::QueuePair qp;
};

/// Two connected devices of one model.
class Pair {
 public:
  explicit Pair(const std::string& model)
      : lab_(std::vector{model, model}), a_(lab_.device(0)), b_(lab_.device(1)) {
    must(verbs::connect(a_.qp, b_.qp, {.path_mtu = 4096}));
  }

  /// From the start of one memory to the start of the other. Small messages are inlined.
  /// Always inlined: the harness's own cost is part of each figure.
  [[gnu::always_inline]] void write(std::size_t size, bool signaled) {
    const auto piece = a_.region.piece(0, size);
    driver::SendRequest request{.opcode = driver::SendOpcode::kRdmaWrite,
                                .remote_address = b_.region.address(),
                                .rkey = b_.region.rkey(),
                                .signaled = signaled};
    if (size <= kSmall) {
      request.inline_data = std::span(a_.memory).first(size);
    } else {
      request.pieces = {&piece, 1};
    }
    if (a_.qp.post_send(request) != driver::PostStatus::kOk) throw std::runtime_error("posting");
  }
  /// Waits for one completion.
  void wait() {
    while (a_.cq.poll(done_) == 0) {
    }
    if (done_[0].status != driver::WorkStatus::kSuccess) {
      throw std::runtime_error(std::string(driver::to_string(done_[0].status)));
    }
  }

 private:
  lab::Lab lab_;
  Side a_;
  Side b_;
  std::array<driver::Completion, 1> done_;
};

/// Many in flight, a completion for one in kSignalEvery.
void write_many(Pair& pair, std::size_t size, std::uint64_t n) {
  std::uint64_t posted = 0;
  for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
    while (posted < n && posted - done < kSignalEvery) {
      ++posted;
      pair.write(size, posted % kSignalEvery == 0 || posted == n);
    }
    pair.wait();
  }
}

/// Waits for the completion of each.
void write_each(Pair& pair, std::size_t size, std::uint64_t n) {
  for (std::uint64_t i = 0; i != n; ++i) {
    pair.write(size, true);
    pair.wait();
  }
}

struct Case {
  std::string name;
  std::string unit;
  void (*run)(Pair&, std::size_t size, std::uint64_t n);
  std::size_t size;
  double (*value)(double ns);
};

/// Each name begins with its model.
const std::array kCases = {
    Case{"write.8B.rate", "M/s", write_many, kSmall, [](double ns) { return 1e3 / ns; }},
    Case{"write.8B.completion", "ns", write_each, kSmall, [](double ns) { return ns; }},
    Case{"write.1MiB", "GB/s", write_many, kMemory,
         [](double ns) { return static_cast<double>(kMemory) / ns; }},
};
constexpr std::array kModels = {"jingzhao", "connectx"};

std::string name_of(const std::string& model, const Case& c) { return model + "." + c.name; }

/// Prints no figure: another program counts the instructions.
void run_exactly(const Options& options) {
  for (const auto* const model : kModels) {
    for (const auto& c : kCases) {
      if (options.only != name_of(model, c)) continue;
      Pair pair(model);
      return c.run(pair, c.size, options.operations);
    }
  }
}

std::vector<Result> run(const Options& options) {
  if (options.operations != 0) {
    run_exactly(options);
    return {};
  }
  Pair ours(kModels[0]), peer(kModels[1]);
  std::vector<Result> results;
  for (const auto& c : kCases) {
    const auto figure = [&](Pair& pair) {
      return [&] {
        return c.value(time_of(options, [&](std::uint64_t n) { c.run(pair, c.size, n); }));
      };
    };
    const auto name = name_of(kModels[0], c);
    if (!options.wants(name)) continue;
    results.push_back(
        measure_rounds(options, name, c.unit, figure(ours), kModels[1], figure(peer)));
  }
  return results;
}

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  for (const auto* const model : kModels) {
    for (const auto& c : kCases) names.push_back(name_of(model, c));
  }
  return run_program(argc, argv,
                     {.name = "verbs_bench",
                      .text = "RDMA WRITEs between two JingZhao in this process, beside two "
                              "ConnectX. Those that begin with connectx. are for --operations.",
                      .names = names,
                      .run = [&] { return run(options); }},
                     options);
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

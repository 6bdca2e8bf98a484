// Cost of RDMA WRITEs and Ethernet frames between two ConnectX devices in this process, through the
// driver: bandwidth next to memcpy of the same buffers, latency, messages per second.
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "pair.h"
#include "program.h"

namespace softhca::bench {
namespace {

constexpr std::size_t kMemory = 1 << 20;
constexpr std::size_t kSmall = 8;
constexpr std::size_t kDatagram = 64;
constexpr std::size_t kFrame = 1500;
/// One in this many messages is signaled, and so polled for.
constexpr std::uint64_t kSignalEvery = 32;

// Each measured function does n operations.

/// `n` requests from a, kQueueDepth in flight, one in kSignalEvery signaled. `post` gets whether
/// its request is signaled.
template <class Post>
void keep_in_flight(Pair& pair, std::uint64_t n, Post&& post) {
  std::uint64_t posted = 0;
  for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
    while (posted < n && posted - done < Pair::kQueueDepth) {
      ++posted;
      post(posted % kSignalEvery == 0 || posted == n);
    }
    pair.wait(pair.a(), 1);
  }
}

void write_bandwidth(Pair& pair, std::size_t size, std::uint64_t n) {
  keep_in_flight(pair, n, [&](bool signaled) { pair.write(pair.a(), pair.b(), size, signaled); });
}

void read_bandwidth(Pair& pair, std::size_t size, std::uint64_t n) {
  keep_in_flight(pair, n, [&](bool signaled) { pair.read(pair.a(), pair.b(), size, signaled); });
}

/// The peer posts a receive for each message and gets a completion for each.
void send_bandwidth(Pair& pair, std::size_t size, std::uint64_t n) {
  std::uint64_t received = 0;
  std::uint64_t posted = 0;
  keep_in_flight(pair, n, [&](bool signaled) {
    if (posted - received == Pair::kQueueDepth) {
      pair.wait(pair.b(), kSignalEvery);
      received += kSignalEvery;
    }
    pair.receive(pair.b(), size);
    ++posted;
    pair.send(pair.a(), size, signaled);
  });
  pair.wait(pair.b(), posted - received);
}

void copy(Pair& pair, std::size_t size, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    std::memcpy(pair.b().memory.data(), pair.a().memory.data(), size);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // no overlap of copies
  }
}

/// From posting to polling the completion, which arrives once the peer has acknowledged.
void write_to_completion(Pair& pair, std::uint64_t n) {
  const std::array<std::byte, kSmall> bytes{};
  for (std::uint64_t i = 0; i < n; ++i) {
    pair.write_inline(pair.a(), pair.b(), bytes, true);
    pair.wait(pair.a(), 1);
  }
}

/// Half a round trip, measured as ib_write_lat does: each side answers once it sees the other's
/// bytes in its memory.
void write_latency(Pair& pair, std::uint64_t n) {
  std::array<std::byte, kSmall> bytes{};
  auto* from = &pair.a();
  auto* to = &pair.b();
  for (std::uint64_t i = 1; i <= n; ++i) {
    std::memcpy(bytes.data(), &i, sizeof(i));
    const bool signaled = i / 2 % kSignalEvery == 0;  // on both sides, to free their queues
    pair.write_inline(*from, *to, bytes, signaled);
    while (std::memcmp(to->memory.data(), bytes.data(), kSmall) != 0) to->host.progress();
    if (signaled) pair.wait(*from, 1);
    std::swap(from, to);
  }
}

/// Small writes with many in flight, a completion for one in kSignalEvery.
void write_rate(Pair& pair, std::uint64_t n) {
  const std::array<std::byte, kSmall> bytes{};
  for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
    for (std::uint64_t i = 1; i <= kSignalEvery; ++i) {
      pair.write_inline(pair.a(), pair.b(), bytes, i == kSignalEvery);
    }
    pair.wait(pair.a(), 1);
  }
}

/// Datagrams with many in flight, a send completion for one in kSignalEvery. Each receive is posted
/// and completes.
void datagram_rate(Pair& pair, std::uint64_t n) {
  const std::array<std::byte, kDatagram> bytes{};
  for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
    for (std::uint64_t i = 1; i <= kSignalEvery; ++i) {
      pair.receive_datagram(pair.b());
      pair.send_datagram(pair.a(), pair.b(), bytes, i == kSignalEvery);
    }
    pair.wait(pair.a(), 1);
    pair.wait(pair.b(), kSignalEvery);
  }
}

/// Ethernet frames with many in flight, a send completion for one in kSignalEvery. Each receive
/// completes.
void frame_rate(Pair& pair, std::size_t size, std::uint64_t n) {
  std::uint64_t posted = 0;
  std::uint64_t sent = 0;
  for (std::uint64_t done = 0; done < n; done += kSignalEvery) {
    for (; posted < n && posted - done < Pair::kQueueDepth; posted += kSignalEvery) {
      pair.receive_frames(pair.b(), kSignalEvery);
      pair.send_frames(pair.a(), pair.b(), size, kSignalEvery);
    }
    for (; sent <= done; sent += kSignalEvery) pair.wait(pair.a(), 1);
    pair.wait(pair.b(), kSignalEvery);
  }
}

// A measurement and its unit.

double gigabytes_per_second(std::size_t size, double ns) { return static_cast<double>(size) / ns; }

struct Case {
  std::string name;
  std::string unit;
  std::function<void(Pair&, std::uint64_t)> run;
  std::function<double(double ns)> value;
  std::string peer_name;
  std::function<void(Pair&, std::uint64_t)> peer;
};

using Bandwidth = void (*)(Pair&, std::size_t size, std::uint64_t n);

Case bandwidth_case(std::string name, Bandwidth run, std::size_t size) {
  return {.name = std::move(name),
          .unit = "GB/s",
          .run = [run, size](Pair& p, std::uint64_t n) { run(p, size, n); },
          .value = [size](double ns) { return gigabytes_per_second(size, ns); },
          .peer_name = "memcpy",
          .peer = [size](Pair& p, std::uint64_t n) { copy(p, size, n); }};
}

std::vector<Case> all_cases() {
  const auto ns = [](double t) { return t; };
  return {
      bandwidth_case("write.1MiB", write_bandwidth, std::size_t{1} << 20),
      bandwidth_case("write.64KiB", write_bandwidth, std::size_t{64} << 10),
      bandwidth_case("write.4KiB", write_bandwidth, std::size_t{4} << 10),
      bandwidth_case("read.1MiB", read_bandwidth, std::size_t{1} << 20),
      bandwidth_case("read.64KiB", read_bandwidth, std::size_t{64} << 10),
      bandwidth_case("read.4KiB", read_bandwidth, std::size_t{4} << 10),
      bandwidth_case("send.1MiB", send_bandwidth, std::size_t{1} << 20),
      bandwidth_case("send.64KiB", send_bandwidth, std::size_t{64} << 10),
      bandwidth_case("send.4KiB", send_bandwidth, std::size_t{4} << 10),
      {"frame.1500B", "GB/s", [](Pair& p, std::uint64_t n) { frame_rate(p, kFrame, n); },
       [](double t) { return gigabytes_per_second(kFrame, t); }, "memcpy",
       [](Pair& p, std::uint64_t n) { copy(p, kFrame, n); }},
      {"write.8B.latency", "ns", write_latency, ns, "", {}},
      {"write.8B.completion", "ns", write_to_completion, ns, "", {}},
      {"write.8B.rate", "M/s", write_rate, [](double t) { return 1e3 / t; }, "", {}},
      {"ud.send.64B", "M/s", datagram_rate, [](double t) { return 1e3 / t; }, "", {}},
  };
}

Result measure(const Case& c, Pair& pair, const Options& options) {
  const auto figure = [&](const auto& run) {
    return [&] { return c.value(time_of(options, [&](std::uint64_t n) { run(pair, n); })); };
  };
  return measure_rounds(options, c.name, c.unit, figure(c.run), c.peer_name,
                        c.peer ? figure(c.peer) : std::function<double()>());
}

std::vector<Result> run(const Options& options) {
  Pair pair(kMemory);
  std::vector<Result> results;
  for (const auto& c : all_cases()) {
    if (!options.wants(c.name)) continue;
    if (options.operations != 0) {
      c.run(pair, options.operations);
    } else {
      results.push_back(measure(c, pair, options));
    }
  }
  return results;
}

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  for (const auto& c : all_cases()) names.push_back(c.name);
  return run_program(
      argc, argv,
      {.name = "connectx_bench",
       .text = "RDMA WRITEs and Ethernet frames between two ConnectX devices in this process, "
               "through the driver.",
       .names = names,
       .run = [&] { return run(options); }},
      options);
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) { return softhca::bench::main(argc, argv); }

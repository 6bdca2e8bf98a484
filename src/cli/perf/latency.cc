#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/perf/measure.h"

namespace softhca::cli::perf {

using driver::Completion;
using driver::PostStatus;
using driver::WorkStatus;

namespace {

constexpr std::uint64_t kIterations = 1000;
constexpr std::size_t kSamplesMax = 1 << 20;
/// Signaled now and then, to free the send queue.
constexpr std::uint64_t kSignalEvery = 16;
/// Rounds before the clock counts.
constexpr std::uint64_t kWarmUp = 32;

util::Result<void> wait(verbs::CompletionQueue& cq) {
  const auto done = cq.wait();
  if (!done) return tl::unexpected(done.error());
  if (done->status == WorkStatus::kSuccess) return {};
  return util::fail(fmt::format("a request ended: {}", driver::to_string(done->status)));
}

util::Result<void> post(Side& side, const Options& options, std::uint64_t size, bool signaled) {
  const auto status = side.post(options, size, 0, signaled);
  if (status == PostStatus::kOk) return {};
  return util::fail(fmt::format("posting: {}", driver::to_string(status)));
}

/// READ or atomic: until it is complete.
util::Result<void> round_trip(Station& station, std::uint64_t size, std::uint64_t) {
  if (auto done = post(station.a(), station.options(), size, true); !done) return done;
  return wait(station.a().send_cq);
}

/// One message from `from`, seen at `to` by its receive.
util::Result<void> send_one(Station& station, Side& from, Side& to, std::uint64_t size,
                            bool signaled) {
  if (to.receive(size) != PostStatus::kOk) return util::fail("posting a receive");
  if (auto done = post(from, station.options(), size, signaled); !done) return done;
  if (auto done = wait(to.receive_cq); !done) return done;
  return signaled ? wait(from.send_cq) : util::Result<void>();
}

/// One message from `from`, seen at `to` by its last byte.
util::Result<void> write_one(Station& station, Side& from, Side& to, std::uint64_t size,
                             bool signaled, std::byte mark) {
  from.memory[size - 1] = mark;
  if (auto done = post(from, station.options(), size, signaled); !done) return done;
  const volatile auto* const last = to.target() + size - 1;
  while (*last != mark) {
    to.device.host().progress();
    Completion failed;
    // A request that fails would be waited for in vain.
    if (!signaled && from.send_cq.poll({&failed, 1}) == 1) {
      return util::fail(fmt::format("a request ended: {}", driver::to_string(failed.status)));
    }
  }
  return signaled ? wait(from.send_cq) : util::Result<void>();
}

util::Result<void> ping_pong(Station& station, std::uint64_t size, std::uint64_t round) {
  const bool signaled = round % kSignalEvery == 0;
  auto& a = station.a();
  auto& b = station.b();
  if (station.options().is_send()) {
    if (auto done = send_one(station, a, b, size, signaled); !done) return done;
    return send_one(station, b, a, size, signaled);
  }
  const auto mark = static_cast<std::byte>(round % 255 + 1);
  if (auto done = write_one(station, a, b, size, signaled, mark); !done) return done;
  return write_one(station, b, a, size, signaled, mark);
}

}  // namespace

Latency summarize(std::uint64_t size, std::vector<double>& samples) {
  Latency out{.size = size, .iterations = samples.size()};
  if (samples.empty()) return out;
  std::ranges::sort(samples);
  const auto at = [&](double part) {
    const auto rank = std::ceil(part * static_cast<double>(samples.size()));
    return samples[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  out.minimum = samples.front();
  out.maximum = samples.back();
  out.typical = at(0.5);
  out.p90 = at(0.9);
  out.p99 = at(0.99);
  out.p999 = at(0.999);
  double sum = 0, squares = 0;
  for (const auto sample : samples) sum += sample;
  const auto count = static_cast<double>(samples.size());
  out.average = sum / count;
  for (const auto sample : samples) squares += (sample - out.average) * (sample - out.average);
  out.deviation = std::sqrt(squares / count);
  return out;
}

util::Result<Latency> measure_latency(Station& station, std::uint64_t size, const Continue& go_on) {
  const auto& options = station.options();
  const bool both_ways = options.verb == Verb::kSend || options.verb == Verb::kWrite;
  const auto one = both_ways ? ping_pong : round_trip;
  const auto iterations = options.iterations.value_or(kIterations);
  std::vector<double> samples;
  samples.reserve(options.duration > 0 ? kSamplesMax : iterations);
  for (std::uint64_t i = 1; i <= kWarmUp; ++i) {
    if (auto done = one(station, size, i); !done) return tl::unexpected(done.error());
  }
  const auto begin = util::monotonic_now();
  auto before = begin;
  for (std::uint64_t i = kWarmUp + 1;; ++i) {
    if (auto done = one(station, size, i); !done) return tl::unexpected(done.error());
    const auto now = util::monotonic_now();
    const auto us = std::chrono::duration<double, std::micro>(now - before).count();
    before = now;
    samples.push_back(both_ways ? us / 2 : us);
    const auto passed = std::chrono::duration<double>(now - begin).count();
    const auto part = options.duration > 0
                          ? passed / options.duration
                          : static_cast<double>(samples.size()) / static_cast<double>(iterations);
    if (part >= 1 || samples.size() == kSamplesMax) break;
    if (i % 64 == 0 && !go_on(part)) break;
  }
  return summarize(size, samples);
}

}  // namespace softhca::cli::perf

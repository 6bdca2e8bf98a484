#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "perf/measure.h"
#include "perf/watchdog.h"

namespace softhca::perf {

using driver::Completion;
using driver::PostStatus;
using driver::WorkStatus;

namespace {

constexpr std::uint64_t kLatencyIterations = 1000;
constexpr std::size_t kSamplesMax = 1 << 20;
/// Some requests are signaled, to free send queue entries.
constexpr std::uint64_t kSignalEvery = 16;
static_assert(kSignalEvery < kLatencyDepth);
/// The passive end checks for the end once in this many turns.
constexpr unsigned kLatencyTurnsPerLook = 1024;
/// Rounds before measuring begins.
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

/// READ or atomic: waits until it is complete.
util::Result<void> round_trip(Testbed& testbed, std::uint64_t size, std::uint64_t,
                              const Continue&) {
  if (auto done = post(testbed.a(), testbed.options(), size, true); !done) return done;
  return wait(testbed.a().send_cq);
}

/// Each end of a SEND ping-pong has a receive posted before the first message.
util::Result<void> post_receive(Side& side, std::uint64_t size) {
  if (side.receive(size) != PostStatus::kOk) return util::fail("posting a receive");
  return {};
}

/// One message from `from`, detected at `to` by its receive completion.
util::Result<void> send_one(Testbed& testbed, Side& from, Side& to, std::uint64_t size,
                            bool signaled) {
  if (to.receive(size) != PostStatus::kOk) return util::fail("posting a receive");
  if (auto done = post(from, testbed.options(), size, signaled); !done) return done;
  if (auto done = wait(to.receive_cq); !done) return done;
  return signaled ? wait(from.send_cq) : util::Result<void>();
}

/// The last byte of a round's message.
std::byte mark_of(std::uint64_t round) { return static_cast<std::byte>(round % 255 + 1); }

/// One message from `from`, detected at `to` by its last byte.
util::Result<void> write_one(Testbed& testbed, Side& from, Side& to, std::uint64_t size,
                             std::uint64_t round, const Continue& go_on) {
  const bool signaled = round % kSignalEvery == 0;
  const auto mark = mark_of(round);
  from.memory[size - 1] = mark;
  if (auto done = post(from, testbed.options(), size, signaled); !done) return done;
  const volatile auto* const last = to.target() + size - 1;
  Watchdog watchdog(testbed);
  for (unsigned turn = 1; *last != mark; ++turn) {
    to.device.host().progress();
    if (turn % kLatencyTurnsPerLook == 0) {
      if (auto alive = watchdog.look(util::monotonic_now(), 0); !alive) return alive;
      if (!go_on(-1)) return util::fail("interrupted");
    }
    Completion failed;
    // Stop waiting if the request failed.
    if (!signaled && from.send_cq.poll({&failed, 1}) == 1) {
      return util::fail(fmt::format("a request ended: {}", driver::to_string(failed.status)));
    }
  }
  return signaled ? wait(from.send_cq) : util::Result<void>();
}

util::Result<void> ping_pong(Testbed& testbed, std::uint64_t size, std::uint64_t round,
                             const Continue& go_on) {
  const bool signaled = round % kSignalEvery == 0;
  auto& a = testbed.a();
  auto& b = testbed.b();
  if (testbed.options().is_send()) {
    if (auto done = send_one(testbed, a, b, size, signaled); !done) return done;
    return send_one(testbed, b, a, size, signaled);
  }
  if (auto done = write_one(testbed, a, b, size, round, go_on); !done) return done;
  return write_one(testbed, b, a, size, round, go_on);
}

/// A round with a peer in another process.
util::Result<void> ping_peer(Testbed& testbed, std::uint64_t size, std::uint64_t round,
                             const Continue& go_on) {
  const bool signaled = round % kSignalEvery == 0;
  auto& side = testbed.a();
  // The answer arrives at the same side.
  if (!testbed.options().is_send()) {
    return write_one(testbed, side, side, size, round, go_on);
  }
  if (auto done = post(side, testbed.options(), size, signaled); !done) return done;
  if (auto done = wait(side.receive_cq); !done) return done;
  if (auto done = post_receive(side, size); !done) return done;
  return signaled ? wait(side.send_cq) : util::Result<void>();
}

/// Waits for a message from the peer. False: the peer is done.
util::Result<bool> wait_for_ping(Testbed& testbed, std::uint64_t size, std::uint64_t round,
                                 const Continue& go_on) {
  auto& side = testbed.a();
  const auto verb = testbed.options().verb;
  const volatile auto* const last = side.target() + size - 1;
  Completion received;
  for (unsigned turn = 1;; ++turn) {
    if (verb == Verb::kSend && side.receive_cq.poll({&received, 1}) == 1) {
      if (received.status == WorkStatus::kSuccess) return true;
      return util::fail(fmt::format("a receive ended: {}", driver::to_string(received.status)));
    }
    if (verb == Verb::kWrite && *last == mark_of(round)) return true;
    side.device.host().progress();
    if (turn % kLatencyTurnsPerLook != 0) continue;
    if (testbed.lost()) return device_gone();
    const auto finished = testbed.peer()->finished();
    if (!finished) return tl::unexpected(finished.error());
    if (*finished || !go_on(-1)) return false;
  }
}

/// Answers it.
util::Result<void> pong(Testbed& testbed, std::uint64_t size, std::uint64_t round) {
  const bool signaled = round % kSignalEvery == 0;
  auto& side = testbed.a();
  if (testbed.options().is_send()) {
    if (auto done = post_receive(side, size); !done) return done;
  }
  side.memory[size - 1] = mark_of(round);
  if (auto done = post(side, testbed.options(), size, signaled); !done) return done;
  return signaled ? wait(side.send_cq) : util::Result<void>();
}

/// Returns when both ends are ready for the first message.
util::Result<void> meet_peer(Testbed& testbed, std::uint64_t size) {
  auto& side = testbed.a();
  side.target()[size - 1] = std::byte{0};
  if (testbed.options().is_send()) {
    if (auto done = testbed.reconnect(); !done) return done;
    if (auto done = post_receive(side, size); !done) return done;
  }
  return testbed.peer()->meet();
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

util::Result<Latency> measure_latency(Testbed& testbed, std::uint64_t size, const Continue& go_on) {
  const auto& options = testbed.options();
  const bool both_ways = options.verb == Verb::kSend || options.verb == Verb::kWrite;
  auto* const peer = testbed.peer();
  const auto one = !both_ways ? round_trip : peer == nullptr ? ping_pong : ping_peer;
  if (peer != nullptr) {
    if (auto here = meet_peer(testbed, size); !here) return tl::unexpected(here.error());
  }
  const auto iterations = options.messages.iterations.value_or(kLatencyIterations);
  std::vector<double> samples;
  samples.reserve(options.messages.duration > 0 ? kSamplesMax : iterations);
  for (std::uint64_t i = 1; i <= kWarmUp; ++i) {
    if (auto done = one(testbed, size, i, go_on); !done) return tl::unexpected(done.error());
  }
  const auto begin = util::monotonic_now();
  auto before = begin;
  for (std::uint64_t i = kWarmUp + 1;; ++i) {
    if (auto done = one(testbed, size, i, go_on); !done) return tl::unexpected(done.error());
    const auto now = util::monotonic_now();
    const auto us = std::chrono::duration<double, std::micro>(now - before).count();
    before = now;
    samples.push_back(both_ways ? us / 2 : us);
    const auto passed = std::chrono::duration<double>(now - begin).count();
    const auto part = options.messages.duration > 0
                          ? passed / options.messages.duration
                          : static_cast<double>(samples.size()) / static_cast<double>(iterations);
    if (part >= 1 || samples.size() == kSamplesMax) break;
    if (i % 64 == 0 && !go_on(part)) break;
  }
  if (peer != nullptr) {
    if (auto finished = peer->finish(); !finished) return tl::unexpected(finished.error());
  }
  return summarize(size, samples);
}

util::Result<void> serve_latency(Testbed& testbed, std::uint64_t size, const Continue& go_on) {
  if (auto here = meet_peer(testbed, size); !here) return here;
  for (std::uint64_t round = 1;; ++round) {
    const auto pinged = wait_for_ping(testbed, size, round, go_on);
    if (!pinged) return tl::unexpected(pinged.error());
    if (!*pinged) return {};
    if (auto done = pong(testbed, size, round); !done) return done;
  }
}

}  // namespace softhca::perf

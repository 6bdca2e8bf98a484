#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "perf/measure.h"
#include "perf/watchdog.h"

namespace softhca::perf {

using driver::Completion;
using driver::PostStatus;
using driver::WorkStatus;

namespace {

constexpr std::uint64_t kBandwidthIterations = 5000;
/// The passive end checks for the end once in this many turns.
constexpr unsigned kBandwidthTurnsPerLook = 64;

/// Messages per second in the best part of a run. A part extends over several productive polls of
/// the queue.
class Peak {
 public:
  void note(std::uint64_t done) {
    const Mark mark{.when = util::monotonic_now(), .done = done};
    auto& before = marks_[count_ % marks_.size()];
    const auto seconds = std::chrono::duration<double>(mark.when - before.when).count();
    if (count_++ >= marks_.size() && seconds > 0) {
      rate_ = std::max(rate_, static_cast<double>(mark.done - before.done) / seconds);
    }
    before = mark;
  }
  double rate() const { return rate_; }

 private:
  /// The number of complete messages at a time.
  struct Mark {
    util::Time when{};
    std::uint64_t done = 0;
  };
  std::array<Mark, 4> marks_;
  std::uint64_t count_ = 0;
  double rate_ = 0;
};

/// One direction: keeps the send queue full, takes completions, and posts receives at the other end
/// if that is in this process.
class Flow {
 public:
  Flow(Side& from, Side* to, const Options& options, std::uint64_t size, std::uint64_t count)
      : from_(from), to_(to), options_(options), size_(size), count_(count) {
    signal_every_ = std::min(options.queues.cq_mod, options.queues.tx_depth);
  }

  util::Result<void> prepare() {
    if (!receives_here()) return {};
    while (receives_ < options_.queues.rx_depth) {
      if (to_->receive(size_) != PostStatus::kOk) return util::fail("posting a receive");
      ++receives_;
    }
    return {};
  }

  /// Posts what fits into the send queue, and takes completions.
  util::Result<void> step() {
    while (posted_ != count_ && posted_ - done_ < options_.queues.tx_depth && has_receive()) {
      const auto number = posted_ + 1;
      const bool signaled = number % signal_every_ == 0 || number == count_;
      const auto status = from_.post(options_, size_, number, signaled);
      if (status == PostStatus::kQueueFull) break;
      if (status != PostStatus::kOk) {
        return util::fail(fmt::format("posting: {}", driver::to_string(status)));
      }
      posted_ = number;
    }
    if (auto taken = take(from_.send_cq, false); !taken) return taken;
    return receives_here() ? take(to_->receive_cq, true) : util::Result<void>();
  }

  /// Ends the run at the last signaled request that is already posted.
  void stop() { count_ = posted_ / signal_every_ * signal_every_; }
  bool finished() const { return done_ >= count_ && (!receives_here() || received_ >= count_); }
  std::uint64_t done() const { return done_; }
  std::uint64_t count() const { return count_; }
  /// Changes with each completion.
  std::uint64_t seen() const { return done_ + received_; }
  double peak() const { return peak_.rate(); }

 private:
  bool receives_here() const { return options_.is_send() && to_ != nullptr; }
  bool has_receive() const {
    return !receives_here() || posted_ - received_ < options_.queues.rx_depth;
  }
  util::Result<void> take(verbs::CompletionQueue& cq, bool receives) {
    const auto found = cq.poll(found_);
    for (const auto& completion : std::span(found_).first(found)) {
      if (completion.status != WorkStatus::kSuccess) {
        return util::fail(fmt::format("a request ended: {}", driver::to_string(completion.status)));
      }
      if (!receives) {
        done_ = completion.id;
        continue;
      }
      ++received_;
      if (to_->receive(size_) != PostStatus::kOk) return util::fail("posting a receive");
    }
    if (found != 0 && !receives) peak_.note(done_);
    return {};
  }

  Side& from_;
  Side* to_;  ///< null: in another process
  const Options& options_;
  std::uint64_t size_;
  std::uint64_t count_;
  std::uint64_t signal_every_;
  std::uint64_t posted_ = 0, done_ = 0, received_ = 0, receives_ = 0;
  Peak peak_;
  std::array<Completion, 64> found_;
};

/// Drops leftovers of the previous run: receives without a message.
util::Result<void> renew(Testbed& testbed) {
  if (!testbed.options().is_send()) return {};
  return testbed.reconnect();
}

/// Reposts receives of the passive end as they complete.
util::Result<void> take_receives(Side& side, std::uint64_t size) {
  std::array<Completion, 64> found;
  const auto count = side.receive_cq.poll(found);
  for (const auto& completion : std::span(found).first(count)) {
    if (completion.status != WorkStatus::kSuccess) {
      return util::fail(fmt::format("a receive ended: {}", driver::to_string(completion.status)));
    }
    if (side.receive(size) != PostStatus::kOk) return util::fail("posting a receive");
  }
  return {};
}

}  // namespace

util::Result<Bandwidth> measure_bandwidth(Testbed& testbed, std::uint64_t size,
                                          const Continue& go_on) {
  const auto& options = testbed.options();
  if (auto done = renew(testbed); !done) return tl::unexpected(done.error());
  const bool timed = options.messages.duration > 0;
  const auto count =
      timed ? UINT64_MAX / 2 : options.messages.iterations.value_or(kBandwidthIterations);
  auto* const peer = testbed.peer();
  std::vector<Flow> flows;
  flows.emplace_back(testbed.a(), peer == nullptr ? &testbed.b() : nullptr, options, size, count);
  if (options.bidirectional) flows.emplace_back(testbed.b(), &testbed.a(), options, size, count);
  for (auto& flow : flows) {
    if (auto done = flow.prepare(); !done) return tl::unexpected(done.error());
  }
  if (peer != nullptr) {
    if (auto here = peer->meet(); !here) return tl::unexpected(here.error());
  }
  const auto begin = util::monotonic_now();
  Watchdog watchdog(testbed);
  bool stopped = false;
  for (std::uint64_t turn = 1; !std::ranges::all_of(flows, &Flow::finished); ++turn) {
    for (auto& flow : flows) {
      if (auto done = flow.step(); !done) return tl::unexpected(done.error());
    }
    if (turn % 16 != 0) continue;
    const auto now = util::monotonic_now();
    if (auto alive = watchdog.look(now, flows.front().seen() + flows.back().seen()); !alive) {
      return tl::unexpected(alive.error());
    }
    const auto passed = std::chrono::duration<double>(now - begin).count();
    const auto part = timed ? std::min(passed / options.messages.duration, 1.0)
                            : static_cast<double>(flows[0].done()) / static_cast<double>(count);
    if (!go_on(part)) break;
    if (stopped || !timed || part < 1) continue;
    stopped = true;
    std::ranges::for_each(flows, &Flow::stop);
  }
  Bandwidth out{.size = size, .iterations = flows[0].count()};
  out.seconds = std::chrono::duration<double>(util::monotonic_now() - begin).count();
  if (peer != nullptr) {
    if (auto finished = peer->finish(); !finished) return tl::unexpected(finished.error());
  }
  double messages = 0, peak = 0;
  for (const auto& flow : flows) {
    messages += static_cast<double>(flow.count());
    peak += flow.peak();
  }
  out.rate = out.seconds > 0 ? messages / out.seconds : 0;
  out.average = out.rate * static_cast<double>(size);
  out.peak = options.output.no_peak ? 0 : std::max(peak, out.rate) * static_cast<double>(size);
  return out;
}

util::Result<void> serve_bandwidth(Testbed& testbed, std::uint64_t size, const Continue& go_on) {
  if (auto done = renew(testbed); !done) return done;
  auto& side = testbed.a();
  const bool receives = testbed.options().is_send();
  for (unsigned i = 0; receives && i != testbed.options().queues.rx_depth; ++i) {
    if (side.receive(size) != PostStatus::kOk) return util::fail("posting a receive");
  }
  if (auto here = testbed.peer()->meet(); !here) return here;
  for (;;) {
    for (unsigned i = 0; i != kBandwidthTurnsPerLook; ++i) {
      if (!receives) {
        side.device.host().progress();
      } else if (auto done = take_receives(side, size); !done) {
        return done;
      }
    }
    if (testbed.lost()) return device_gone();
    const auto finished = testbed.peer()->finished();
    if (!finished) return tl::unexpected(finished.error());
    if (*finished || !go_on(-1)) return {};
  }
}

}  // namespace softhca::perf

#include "fabric/impairment.h"

#include <algorithm>
#include <utility>

namespace softhca::fabric {

Impairment::Impairment(Port& below, const Options& options)
    : below_(below), options_(options), random_(options.seed) {}

/// Always draws one number, so that later frames of a run do not depend on which options are zero.
/// Not std::bernoulli_distribution, whose results differ between libraries.
bool Impairment::chance(double probability) {
  constexpr double kUnit = 1.0 / (std::uint64_t{1} << 53);
  // no format: the upper 53 bits of a random number
  return static_cast<double>(random_() >> 11) * kUnit < probability;
}

void Impairment::apply_faults(const wire::Frame& frame, Fate& fate) {
  for (auto& [fault, seen] : faults_) {
    if (fault.match && !fault.match(frame)) continue;
    if (++seen < fault.nth) continue;
    ++counters_.scripted;
    fate.drop |= fault.action == Action::kDrop;
    fate.duplicate |= fault.action == Action::kDuplicate;
    fate.reorder |= fault.action == Action::kReorder;
  }
  std::erase_if(faults_, [](const PendingFault& pending) {
    return pending.seen + 1 >= pending.fault.nth + pending.fault.count;
  });
}

Impairment::Fate Impairment::decide(const wire::Frame& frame) {
  Fate fate;
  fate.drop = chance(options_.loss);
  fate.duplicate = chance(options_.duplicate);
  fate.reorder = chance(options_.reorder);
  apply_faults(frame, fate);
  return fate;
}

void Impairment::count() {
  if (below_.released() >= checkpoint_.below) {
    released_ = checkpoint_.own;
    checkpoint_ = last_;
  }
  last_.own = ++counters_.transmitted;
}

std::uint64_t Impairment::loop_back(const wire::Frame& frame, std::uint32_t mark) {
  count();
  last_.below = below_.loop_back(frame, mark);
  return counters_.transmitted;
}

std::uint64_t Impairment::transmit(const wire::Frame& frame) {
  count();
  const auto fate = decide(frame);
  if (fate.drop) {
    ++counters_.lost;
    return counters_.transmitted;
  }
  send(frame, fate.reorder);
  if (fate.duplicate) {
    ++counters_.duplicated;
    send(frame, false);
  }
  return counters_.transmitted;
}

/// Frames held here own their payload, so only the port below can still refer to memory.
std::uint64_t Impairment::released() const {
  const auto below = below_.released();
  if (below >= last_.below) return last_.own;
  return below >= checkpoint_.below ? checkpoint_.own : released_;
}

void Impairment::send(const wire::Frame& frame, bool reorder) {
  auto due = now_ + options_.delay;
  if (options_.jitter.count() > 0) {
    const auto steps = static_cast<std::uint64_t>(options_.jitter.count()) + 1;
    due += util::Duration(static_cast<util::Duration::rep>(random_() % steps));
  }
  if (reorder) {
    ++counters_.reordered;
    const auto distance = std::max(options_.reorder_distance, 1u);
    const auto passes = 1 + static_cast<unsigned>(random_() % distance);
    return hold(frame, due + options_.reorder_hold, passes);
  }
  last_due_ = due = std::max(due, last_due_);
  if (due > now_) return hold(frame, due, 0);
  forward(frame);
}

void Impairment::hold(const wire::Frame& frame, util::Time due, unsigned passes) {
  auto& held = held_.emplace_back(Held{frame, due, passes});
  held.frame.own_segments();
}

/// Sends `frame`, and then the held frames that have let enough frames pass.
void Impairment::forward(const wire::Frame& frame) {
  ++counters_.forwarded;
  last_.below = below_.transmit(frame);
  std::vector<wire::Frame> released;
  std::erase_if(held_, [&](Held& held) {
    if (held.passes_left == 0) return false;
    if (--held.passes_left != 0) return false;
    released.push_back(std::move(held.frame));
    return true;
  });
  for (const auto& late : released) {
    ++counters_.forwarded;
    last_.below = below_.transmit(late);
  }
}

void Impairment::handle_timeout(util::Time now) {
  now_ = now;
  // One at a time, because forward() may release others.
  while (true) {
    const auto first = std::min_element(held_.begin(), held_.end(),
                                        [](const Held& a, const Held& b) { return a.due < b.due; });
    if (first == held_.end() || first->due > now) return;
    const auto frame = std::move(first->frame);
    held_.erase(first);
    forward(frame);
  }
}

util::Time Impairment::next_event() const {
  auto next = util::kNever;
  for (const auto& held : held_) next = std::min(next, held.due);
  return next;
}

}  // namespace softhca::fabric

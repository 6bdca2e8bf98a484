#include "fabric/faulty_link.h"

#include <algorithm>
#include <new>
#include <utility>

#include "fabric/down_times.h"
#include "fabric/frame_damage.h"
#include "util/log.h"
#include "wire/train.h"

namespace softhca::fabric {
namespace {

constexpr std::size_t index_of(Direction direction) { return direction == Direction::kRx ? 1 : 0; }

bool covers(const FaultRule& rule, Direction direction) {
  return rule.direction == Direction::kBoth || rule.direction == direction ||
         (rule.action == FaultAction::kLinkDown && rule.acts_at_once());
}

std::uint64_t mix(std::uint64_t z, unsigned shift, std::uint64_t factor) {
  // no format: a step of a hash
  return (z ^ (z >> shift)) * factor;
}

/// SplitMix64: a state of one word gives the same numbers on every platform.
std::uint64_t draw(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15;
  return mix(mix(mix(state, 30, 0xBF58476D1CE4E5B9), 27, 0x94D049BB133111EB), 31, 1);
}

bool chance(std::uint64_t& state, double probability) {
  constexpr double kUnit = 1.0 / (std::uint64_t{1} << 53);
  // no format: the upper 53 bits of a random number
  return static_cast<double>(draw(state) >> 11) * kUnit < probability;
}

std::uint64_t seed_of(const FaultRule& rule, std::uint64_t number) {
  auto link = number;
  return rule.seed ^ draw(link);
}

/// Whether frames of other packets may go out with a packet because of the rule.
bool adds_frames(const FaultRule& rule) {
  using enum FaultAction;
  return rule.action == kDuplicate || rule.action == kReorder || rule.action == kDelay ||
         rule.action == kLimit || rule.action == kPause;
}

/// How long `bytes` take at a rate in bits per second.
util::Duration duration_of(std::uint64_t bytes, std::uint64_t rate) {
  constexpr std::uint64_t kBits = 8, kNanoseconds = 1'000'000'000;
  return util::Duration(static_cast<util::Duration::rep>(bytes * kBits * kNanoseconds / rate));
}

std::uint64_t count(std::atomic<std::uint64_t>& counter, std::uint64_t more = 1) {
  return counter.fetch_add(more, std::memory_order_relaxed);
}

/// Logs the first firing only: a rule may act on every frame.
void note(const NetworkFaults::Entry& entry, std::string_view name) {
  if (count(entry.counters->fired) != 0) return;
  util::log(util::LogLevel::kDebug, "{}: network fault {} fires: {}", name, entry.id,
            to_text(entry.rule));
}

}  // namespace

FaultyLink::FaultyLink(Port& below, NetworkFaults& faults, std::string name, std::uint64_t number,
                       wire::Link link)
    : PassingPort(below),
      faults_(faults),
      name_(std::move(name)),
      number_(number),
      unplugs_(link == wire::Link::kInfiniband) {
  faults_.attach(*this);
  handle_rules();
}

FaultyLink::~FaultyLink() { faults_.detach(*this); }

void FaultyLink::handle_rules() {
  std::vector<Rule> now;
  for (const auto& entry : faults_.rules()) {
    if (!entry->rule.applies_to(name_)) continue;
    const auto known = std::ranges::find(rules_, entry.get(), &Rule::entry);
    if (known != rules_.end()) {
      now.push_back(*known);
      continue;
    }
    Rule added{.entry = entry.get(), .random = seed_of(entry->rule, number_)};
    if (entry->rule.acts_at_once()) (void)take_down(added, faults_.now());
    now.push_back(added);
  }
  rules_ = std::move(now);
  const auto is_set = [this](unsigned id) {
    return std::ranges::find(rules_, id, &Rule::id) != rules_.end();
  };
  for (auto& lane : lanes_) {
    lane.held.release_others(is_set);
    if (!is_set(lane.paused_by)) lane.paused_until = util::Time::min();
  }
  take_path();
}

/// Arriving frames pass here only while there is something to do with them.
void FaultyLink::take_path() {
  const bool holds =
      std::ranges::any_of(lanes_, [](const Lane& lane) { return !lane.held.empty(); });
  active_ = !rules_.empty() || holds;
  may_add_ = holds || std::ranges::any_of(rules_, adds_frames, &Rule::rule);
  plugged_ = !unplugs_ || !is_down();
  attach();
}

void FaultyLink::set_receiver(Receiver* receiver) {
  receiver_ = receiver;
  attach();
}

void FaultyLink::attach() {
  if (!plugged_) return below().set_receiver(nullptr);  // maybe in the middle of arrive()
  if (active_) return PassingPort::set_receiver(receiver_);
  below().set_receiver(receiver_);
}

/// Called when the link may have gone down or up.
void FaultyLink::follow_state() {
  if (!unplugs_ || plugged_ == !is_down()) return;
  plugged_ = !plugged_;
  attach();
}

std::uint64_t FaultyLink::transmit(const wire::Frame& frame) {
  if (!active_) [[likely]]
    return last_ = below().transmit(frame);
  if (frame.packets() == 1) {
    pass(Direction::kTx, frame);
    return last_;
  }
  // `frame` may be the draft of the port below, which the first packet would overwrite.
  const wire::Frame train(frame);
  wire::for_each_packet(train, [this](const auto& packet) { pass(Direction::kTx, packet); });
  return last_;
}

void FaultyLink::arrive(const wire::Frame& frame, Receiver& to) {
  if (!active_) return to.handle_frame(frame);
  wire::for_each_packet(frame, [this](const auto& packet) { pass(Direction::kRx, packet); });
}

void FaultyLink::pass(Direction direction, const wire::Frame& packet) {
  const auto now = faults_.now();
  // A copy, because frames that were held before may be sent first, in the draft of the port below.
  wire::Frame frame(packet);
  release_due(direction, now, kReleasedPerFrame);
  const auto fate = decide(direction, frame, now);
  if (fate.lost) return;
  send(direction, frame, fate, now);
  if (fate.duplicate) send(direction, frame, fate, now);
}

void FaultyLink::send(Direction direction, const wire::Frame& frame, const Fate& fate,
                      util::Time now) {
  auto& on = lane(direction);
  const bool waits = fate.holder != nullptr && (fate.due > now || fate.passes != 0);
  const bool is_paused = on.paused_until > now, is_behind = on.held.next() <= now;
  if (!waits && !is_paused && !is_behind) {
    forward(direction, frame, now);
    on.held.note_pass();
    return release_due(direction, now, kReleasedPerFrame);
  }
  const auto due = std::max({fate.due, on.paused_until, is_behind ? now : util::Time::min()});
  const auto other = is_paused ? on.paused_by : on.held.next_owner();
  const HeldFrames::Terms terms{.due = due,
                                .passes = fate.passes,
                                .latest = std::max(due, now) + kReorderHold,
                                .owner = waits ? fate.holder->id() : other};
  if (on.held.hold(frame, terms)) return take_room(direction);
  const auto* const owner = faults_.find(terms.owner);
  if (owner != nullptr) count(owner->counters->lost);
}

/// The current frame waits, so limits are busy with it. A frame that is lost takes no room.
void FaultyLink::take_room(Direction direction) {
  for (auto& state : rules_) {
    auto& busy = state.busy_until[index_of(direction)];
    busy = std::max(busy, state.next_busy);
  }
}

void FaultyLink::forward(Direction direction, const wire::Frame& frame, util::Time now) {
  if (const auto* const rule = down_by(now); rule != nullptr) {
    count(rule->entry->counters->lost);
    return;
  }
  if (direction == Direction::kTx) {
    last_ = below().transmit(frame);
    return;
  }
  if (receiver_ == nullptr) return;
  try {
    receiver_->handle_frame(frame);
  } catch (const std::bad_alloc&) {
    if (!receiver_->handle_no_memory()) throw;
  }
}

void FaultyLink::release_due(Direction direction, util::Time now, std::size_t most) {
  auto& from = lane(direction);
  for (; most != 0 && from.paused_until <= now; --most) {
    const auto frame = from.held.take_due(now);
    if (!frame) return;
    forward(direction, *frame, now);
  }
}

FaultyLink::Fate FaultyLink::decide(Direction direction, wire::Frame& frame, util::Time now) {
  Fate fate;
  if (const auto* const rule = down_by(now); rule != nullptr) {
    count(rule->entry->counters->lost);
    fate.lost = true;
    return fate;
  }
  const auto facts = FrameFacts::of(frame);
  for (auto& state : rules_) {
    state.next_busy = {};
    const auto& rule = state.rule();
    if (rule.acts_at_once() || !covers(rule, direction) || !matches(rule, facts)) continue;
    if (fires(state, now)) apply(state, direction, frame, facts, now, fate);
  }
  return fate;
}

/// Counts a frame that the rule matches. True: the rule acts on it.
bool FaultyLink::fires(Rule& state, util::Time now) {
  auto& entry = *state.entry;
  const auto& rule = entry.rule;
  const auto number = entry.counters->matched.fetch_add(1, std::memory_order_relaxed) + 1;
  if (rule.window == util::Duration::zero()) {
    if (!rule.turns.include(number)) return false;
  } else if (entry.acts_until) {
    if (now >= *entry.acts_until) return false;
    if (rule.turns.every != 0 && !rule.turns.include(number)) return false;
  } else if (number < rule.turns.nth || (rule.turns.every != 0 && !rule.turns.include(number))) {
    return false;
  }
  if (rule.probability < 1 && !chance(state.random, rule.probability)) return false;
  if (rule.window != util::Duration::zero() && !entry.acts_until) {
    entry.acts_until = now + rule.window;
  }
  return true;
}

void FaultyLink::apply(Rule& state, Direction direction, wire::Frame& frame,
                       const FrameFacts& facts, util::Time now, Fate& fate) {
  const auto& rule = state.rule();
  switch (rule.action) {
    case FaultAction::kLose:
      fate.lost = true;
      break;
    case FaultAction::kDuplicate:
      fate.duplicate = true;
      break;
    case FaultAction::kReorder:
      fate.passes = std::max(fate.passes, rule.distance);
      fate.holder = &state;
      break;
    case FaultAction::kDelay:
      apply_delay(state, direction, now, fate);
      break;
    case FaultAction::kCorrupt:
      if (!flip_bit(frame, facts, rule.part, draw(state.random))) return;
      break;
    case FaultAction::kMarkEcn:
      if (!apply_mark(state, direction, frame, facts, now)) return;
      break;
    case FaultAction::kLimit:
      apply_limit(state, direction, frame, now, fate);
      break;
    case FaultAction::kPause: {
      auto& on = lane(direction);
      if (now + rule.time > on.paused_until) {
        on.paused_until = now + rule.time;
        on.paused_by = state.id();
      }
      break;
    }
    case FaultAction::kLinkDown:
      fate.lost = true;
      (void)take_down(state, now);
      return;
  }
  note(*state.entry, name_);
}

void FaultyLink::apply_delay(Rule& state, Direction direction, util::Time now, Fate& fate) {
  const auto& rule = state.rule();
  auto due = now + rule.time;
  if (rule.jitter > util::Duration::zero()) {
    const auto steps = static_cast<std::uint64_t>(rule.jitter.count()) + 1;
    due += util::Duration(static_cast<util::Duration::rep>(draw(state.random) % steps));
  }
  auto& last = state.last_due[index_of(direction)];
  last = std::max(due, last);
  fate.due = std::max(fate.due, last);
  fate.holder = &state;
}

void FaultyLink::apply_limit(Rule& state, Direction direction, const wire::Frame& frame,
                             util::Time now, Fate& fate) {
  const auto& rule = state.rule();
  const auto begin = std::max(state.busy_until[index_of(direction)], now);
  if (begin - now > duration_of(rule.queue.value_or(kQueue), rule.rate)) {
    count(state.entry->counters->lost);
    fate.lost = true;
    return;
  }
  state.next_busy = begin + duration_of(frame.size(), rule.rate);
  fate.due = std::max(fate.due, state.next_busy);
  fate.holder = &state;
}

bool FaultyLink::apply_mark(const Rule& state, Direction direction, wire::Frame& frame,
                            const FrameFacts& facts, util::Time now) const {
  const auto& queue = state.rule().queue;
  const auto is_filled = [&](const Rule& other) {
    const auto& rule = other.rule();
    return rule.action == FaultAction::kLimit && covers(rule, direction) &&
           other.busy_until[index_of(direction)] - now > duration_of(*queue, rule.rate);
  };
  if (queue && std::ranges::none_of(rules_, is_filled)) return false;
  return mark_congestion(frame, facts);
}

/// False: it is down already by this rule.
bool FaultyLink::take_down(Rule& state, util::Time now) {
  const auto& rule = state.rule();
  if (state.down_since &&
      (rule.period != util::Duration::zero() || keeps_down(rule, now - *state.down_since))) {
    return false;
  }
  state.down_since = now;
  state.flaps = 0;
  note(*state.entry, name_);
  follow_state();
  return true;
}

void FaultyLink::count_flaps(util::Time now) {
  for (auto& state : rules_) {
    const auto& rule = state.rule();
    if (!state.down_since || rule.period == util::Duration::zero()) continue;
    auto since = now - *state.down_since;
    if (rule.window != util::Duration::zero())
      since = std::min(since, rule.window - util::Duration(1));
    const auto flaps = static_cast<std::uint64_t>(since / rule.period);
    if (flaps > state.flaps) count(state.entry->counters->fired, flaps - state.flaps);
    state.flaps = std::max(flaps, state.flaps);
  }
}

const FaultyLink::Rule* FaultyLink::down_by(util::Time now) const {
  const auto found = std::ranges::find_if(rules_, [now](const Rule& state) {
    return state.down_since && keeps_down(state.rule(), now - *state.down_since);
  });
  return found == rules_.end() ? nullptr : &*found;
}

void FaultyLink::handle_timeout(util::Time now, std::size_t sent_max, std::size_t delivered_max) {
  if (!active_) return;
  count_flaps(now);
  follow_state();
  release_due(Direction::kTx, now, sent_max);
  release_due(Direction::kRx, now, delivered_max);
  if (rules_.empty()) take_path();
}

util::Time FaultyLink::next_frame() const {
  auto next = util::kNever;
  for (const auto& lane : lanes_) {
    if (!lane.held.empty()) next = std::min(next, std::max(lane.held.next(), lane.paused_until));
  }
  return next;
}

util::Time FaultyLink::next_event() const {
  if (!active_) return util::kNever;
  const auto now = faults_.now();
  auto next = unplugs_ && plugged_ == is_down() ? now : next_frame();
  for (const auto& state : rules_) {
    if (!state.down_since) continue;
    const auto edge = next_edge(state.rule(), now - *state.down_since);
    if (edge) next = std::min(next, *state.down_since + *edge);
  }
  return next;
}

}  // namespace softhca::fabric

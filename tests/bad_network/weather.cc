#include "weather.h"

#include <algorithm>

namespace softhca::bad_network {
namespace {

using namespace std::chrono_literals;
using driver::test::must;

/// How long after a storm its victims may still run out of retries.
constexpr auto kAftermath = 1s;
/// One of so many rules is a storm.
constexpr unsigned kStorms = 24;

util::Duration milliseconds(unsigned count) { return std::chrono::milliseconds(count); }

}  // namespace

Weather::Weather(Fleet& fleet, std::uint64_t seed)
    : fleet_(fleet),
      random_(seed),
      active_(fleet.size()),
      may_break_until_(fleet.size()),
      next_start_(fleet.now() + 1s) {}

util::Time Weather::next() const {
  auto next = next_start_;
  for (const auto& active : active_) {
    if (active) next = std::min(next, active->until);
  }
  return next;
}

void Weather::handle() {
  const auto now = fleet_.now();
  for (unsigned host = 0; host != active_.size(); ++host) {
    if (active_[host] && active_[host]->until <= now) end(host);
  }
  if (now < next_start_) return;
  next_start_ = now + milliseconds(1 + below(random_, 5000));
  const auto host = below(random_, static_cast<unsigned>(active_.size()));
  if (!active_[host]) start(host);
}

void Weather::clear() {
  for (unsigned host = 0; host != active_.size(); ++host) {
    if (active_[host]) end(host);
  }
}

std::string Weather::draw_match(bool has_direction) {
  static constexpr std::string_view kDirections[] = {"tx", "rx", "both"};
  static constexpr std::string_view kOpcodes[] = {"ack", "atomic", "read-response", "write",
                                                  "send"};
  auto text = fmt::format("seed={}", random_());
  if (has_direction) text += fmt::format(",direction={}", kDirections[below(random_, 3)]);
  if (below(random_, 4) == 0) text += fmt::format(",opcode={}", kOpcodes[below(random_, 5)]);
  return text;
}

/// A rule that lets a packet pass within half a second.
std::string Weather::draw_rule() {
  static constexpr std::string_view kParts[] = {"header", "payload", "icrc"};
  const auto action = static_cast<fabric::FaultAction>(below(random_, kKinds));
  // A link has both directions.
  const auto match = draw_match(action != fabric::FaultAction::kLinkDown);
  switch (action) {
    case fabric::FaultAction::kLose:
      return fmt::format("{},probability=0.0{},do=lose", match, 1 + below(random_, 2));
    case fabric::FaultAction::kDuplicate:
      return fmt::format("{},probability=0.{},do=duplicate", match, 1 + below(random_, 5));
    case fabric::FaultAction::kReorder:
      return fmt::format("{},probability=0.{},do=reorder,distance={}", match, 1 + below(random_, 3),
                         1 + below(random_, 8));
    case fabric::FaultAction::kDelay:
      return fmt::format("{},every={},do=delay,time={}us,jitter={}us", match, 1 + below(random_, 4),
                         1 + below(random_, 40'000), 1 + below(random_, 10'000));
    case fabric::FaultAction::kCorrupt:
      return fmt::format("{},probability=0.0{},do=corrupt,part={}", match, 1 + below(random_, 2),
                         kParts[below(random_, 3)]);
    case fabric::FaultAction::kMarkEcn:
      return fmt::format("{},do=mark-ecn", match);
    case fabric::FaultAction::kLimit:
      return fmt::format("{},do=limit,rate={}mbit,queue={}K", match, 10 + below(random_, 90),
                         64 + below(random_, 64));
    case fabric::FaultAction::kPause:
      return fmt::format("{},nth={},do=pause,time={}ms", match, 1 + below(random_, 20),
                         1 + below(random_, 100));
    case fabric::FaultAction::kLinkDown:
      return fmt::format("{},nth={},do=link-down,time={}ms", match, 1 + below(random_, 20),
                         1 + below(random_, 100));
  }
  return {};
}

std::string Weather::draw_storm() {
  if (below(random_, 2) == 0) return "do=link-down";
  static constexpr std::string_view kLost[] = {"", "opcode=ack,", "direction=rx,",
                                               "direction=rx,opcode=ack,"};
  return fmt::format("{}do=lose", kLost[below(random_, 4)]);
}

void Weather::start(unsigned host) {
  const bool is_storm = below(random_, kStorms) == 0;
  const auto text =
      fmt::format("port={},{}", fleet_.port_name(host), is_storm ? draw_storm() : draw_rule());
  auto rule = must(fabric::parse_fault(text));
  const auto action = rule.action;
  const auto until =
      fleet_.now() + milliseconds(is_storm ? 5000 + below(random_, 3000) : below(random_, 10'000));
  active_[host] =
      Active{.id = fleet_.faults().add(std::move(rule)), .action = action, .until = until};
  ++rules_[static_cast<std::size_t>(action)];
  if (!is_storm) return;
  ++storms_;
  may_break_until_[host] = until + kAftermath;
}

void Weather::end(unsigned host) {
  const auto& active = *active_[host];
  fired_[static_cast<std::size_t>(active.action)] +=
      fleet_.faults().find(active.id)->counters->fired.load();
  (void)fleet_.faults().remove(active.id);
  active_[host].reset();
}

bool Weather::may_break(unsigned a, unsigned b) const {
  return fleet_.now() < std::max(may_break_until_[a], may_break_until_[b]);
}

}  // namespace softhca::bad_network

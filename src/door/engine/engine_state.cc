#include "door/engine/engine_state.h"

#include <algorithm>
#include <bitset>

#include "door/memory/fault_guard.h"
#include "door/memory/stand_ins.h"
#include "door/tree/tree.h"
#include "os/memory_faults.h"

namespace softhca::door {
namespace {

/// Every n-th turn of a poll is a whole one.
constexpr std::uint64_t kWholeTurn = 16;

}  // namespace

/// In a sparing turn idle devices are skipped, so polling one does not pay for all.
bool EngineState::turn(Turn how) {
  const bool spares = how == Turn::kSparing && cards_.count() > 1;
  const auto now = spares ? util::monotonic_now() : util::Time{};
  std::bitset<kUverbsCount> quiet;
  unsigned place = 0;
  bool busy = false;
  received_ = 0;
  cards_.for_each([&](Card& card) {
    const bool rung = card.device().records().scan();
    // Posted requests leave before the kernel is asked for packets.
    if (rung) card.progress();
    const auto received = card.receive();
    received_ += received;
    busy |= rung;
    quiet[place] = spares && received == 0 && !rung && card.is_quiet(now);
    if (!quiet[place++] && (!rung || received != 0)) card.progress();
  });
  busy |= received_ != 0;
  if (os::MemoryFaults::pending()) busy |= handle_faults();
  place = 0;
  cards_.for_each([&](Card& card) {
    if (quiet[place++]) return;
    card.settle();
    busy |= card.device().poll_events();
    busy |= card.has_work();
  });
  if (cards_.have_rules()) report_link_changes();
  files_.for_each([](uverbs::Context& context) { context.flush_events(); });
  channels_.tick();
  if (OpenedPages::any()) OpenedPages::close();
  return busy;
}

/// Notifies the program that a rule has taken a link down, or that it is up again.
void EngineState::report_link_changes() {
  for (unsigned place = 0; place != cards_.count(); ++place) {
    auto* const card = cards_.find(place);
    const auto up = card == nullptr ? std::nullopt : card->see_link_change();
    if (!up) continue;
    files_.for_each_of(place, [up](uverbs::Context& context) {
      *up ? context.report_port_active() : context.report_port_error();
    });
  }
}

void EngineState::turn_of_poll() {
  const auto count = polls_.fetch_add(1, std::memory_order_relaxed);
  (void)turn(count % kWholeTurn == 0 ? Turn::kWhole : Turn::kSparing);
}

/// Handles program memory that was missing when the device accessed it.
bool EngineState::handle_faults() {
  for (const auto& fault : noted_faults()) {
    files_.for_each(
        [&](uverbs::Context& context) { context.lose_memory(fault.address, fault.was_write); });
  }
  release_faults();
  return true;
}

util::Time EngineState::next_event() const {
  auto next = channels_.next_tick();
  cards_.for_each([&](const Card& card) { next = std::min(next, card.next()); });
  return next;
}

void EngineState::take_arms() {
  cards_.for_each([](Card& card) { (void)card.device().records().scan(); });
}

void EngineState::do_chores() {
  drop_closed();
  look_at_hubs();
  follow_host();  // retries an update that was not possible before
  cards_.for_each([](Card& card) { card.look_after_links(); });
  publish_counters();
  files_.for_each([](uverbs::Context& context) {
    context.publish_clock();
    context.drop_closed();
  });
}

void EngineState::drop_closed() {
  files_.drop_closed();
  channels_.drop_closed();
}

void EngineState::follow_host() {
  for (unsigned place = 0; place != cards_.count(); ++place) {
    // One event for each changed entry, as on Linux.
    auto* const card = cards_.find(place);
    const auto changes = card == nullptr ? 0 : card->follow_host();
    files_.for_each_of(place, [&](uverbs::Context& context) {
      for (unsigned i = 0; i != changes; ++i) context.report_gid_change();
    });
  }
}

void EngineState::look_at_hubs() {
  for (unsigned place = 0; place != cards_.count(); ++place) {
    auto* const card = cards_.find(place);
    if (card == nullptr || !card->see_hub_go()) continue;
    files_.for_each_of(place, [](uverbs::Context& context) { context.report_port_error(); });
  }
}

void EngineState::publish_counters() {
  cards_.for_each([](Card& card) { card.publish_counters(); });
}

void EngineState::leave_to_parent() {
  cards_.for_each([](Card& card) { card.leave_to_parent(); });
  channels_.leave_to_parent();
}

}  // namespace softhca::door

// Addresses of the network: finds the MAC of a GID, and waits until the network has answered.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <mutex>

#include "door/addresses.h"
#include "door/engine.h"
#include "door/fault_guard.h"
#include "util/clock.h"

namespace softhca::door {
namespace {

/// Interval between polls for an answer of the network.
constexpr auto kResolvingNap = std::chrono::microseconds(50);

/// A raw system call, which is no cancellation point: Linux's uverbs commands are none either.
void nap_in_call() {
  const timespec time{.tv_sec = 0, .tv_nsec = kResolvingNap / std::chrono::nanoseconds(1)};
  (void)::syscall(SYS_nanosleep, &time, nullptr);
}

}  // namespace

bool Engine::find_mac(const driver::Gid& to, driver::Mac& mac) {
  // An address that determines its MAC needs no resolution.
  if (door::find_mac(to, mac)) {
    strangers_.look_at(to);
    return true;
  }
  bool found = false;
  for_each_card([&](const Card& card) { found = found || card.find_mac(to, mac); });
  return found;
}

bool Engine::find_present(const driver::Gid& to, driver::Mac& mac) const {
  bool found = false;
  for_each_card([&](const Card& card) { found = found || card.find_present(to, mac); });
  return found;
}

/// Creates the devices of this process that may have the address, even if the program has not
/// opened them: a hardware device answers for its address without being opened.
void Engine::make_card_of(const driver::Gid& to) {
  for (unsigned place = 0; place != cards_.size() && place != options_.addresses.size(); ++place) {
    if (may_have(options_.addresses[place], to)) (void)make_card(place);
  }
}

void Engine::resolve(Resolution& resolution) {
  const auto to = *resolution.wanted();
  make_card_of(to);
  for (;; nap_in_call()) {
    const std::lock_guard held(lock_);
    const FaultGuard guard;
    (void)turn();
    driver::Mac mac;
    if (find_present(to, mac)) return;
    const auto step = resolution.step(util::monotonic_now());
    if (step == Resolution::Step::kGiveUp) return strangers_.look_at(to);
    if (step == Resolution::Step::kAsk) for_each_card([&](Card& card) { card.ask(to); });
  }
}

}  // namespace softhca::door

#include "door/engine/cards.h"

#include <new>

#include "door/card/addresses.h"
#include "door/memory/fault_guard.h"
#include "door/memory/reserve.h"
#include "util/log.h"

namespace softhca::door {
namespace {

constexpr std::uint8_t kMtu1024 = 3, kMtu4096 = 5;

/// Memory that a device takes, and some more: without it, a half-made device cannot be destroyed.
constexpr std::size_t kCardMemory = std::size_t{64} << 20;

}  // namespace

bool Cards::make(unsigned place) {
  if (place >= cards_.size()) return false;
  const FaultGuard guard;
  const std::lock_guard making(making_card_);
  {
    const std::lock_guard held(lock_);
    if (cards_[place] != nullptr) return true;
  }
  const auto number = options_.numbers.first + place;
  if (!has_room(kCardMemory)) {
    util::log(util::LogLevel::kError, "mlx5_{}: no memory for it (see ulimit -v)", number);
    throw std::bad_alloc();
  }
  const auto& addresses = options_.addresses;
  auto made = Card::create(
      {.directory = options_.directory,
       .number = number,
       .address = place < addresses.size() ? addresses[place] : std::string(),
       .loss = options_.loss,
       .find_mac = [this](const auto& to, auto& mac) { return find_mac(to, mac); },
       .want_mac =
           [this](const auto& to) { return resolution_ != nullptr && resolution_->want(to); }});
  if (!made) {
    util::log(util::LogLevel::kError, "mlx5_{}: {}", number, made.error().message);
    return false;
  }
  const std::lock_guard held(lock_);
  cards_[place] = *std::move(made);
  waker_.wake();
  return true;
}

void Cards::make_owners_of(const driver::Gid& to) {
  for (unsigned place = 0; place != cards_.size() && place != options_.addresses.size(); ++place) {
    if (may_have(options_.addresses[place], to)) (void)make(place);
  }
}

bool Cards::find_mac(const driver::Gid& to, driver::Mac& mac) {
  // An address that determines its MAC needs no resolution.
  if (door::find_mac(to, mac)) {
    foreign_addresses_.look_at(to);
    return true;
  }
  bool found = false;
  for_each([&](const Card& card) { found = found || card.find_mac(to, mac); });
  return found;
}

bool Cards::find_present(const driver::Gid& to, driver::Mac& mac) const {
  bool found = false;
  for_each([&](const Card& card) { found = found || card.find_present(to, mac); });
  return found;
}

void Cards::ask(const driver::Gid& to) {
  for_each([&](Card& card) { card.ask(to); });
}

/// Processes are connected by shared memory; for other hosts the MTU fits an Ethernet of 1500
/// bytes, Linux's default.
std::uint8_t Cards::path_mtu(const driver::Gid& to) const {
  bool is_own = false;
  for_each([&](const Card& card) { is_own = is_own || card.has_address(to); });
  return is_own || is_process(to) ? kMtu4096 : kMtu1024;
}

}  // namespace softhca::door

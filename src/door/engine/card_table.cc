#include "door/engine/card_table.h"

#include <algorithm>
#include <new>

#include "door/card/addresses.h"
#include "door/memory/fault_guard.h"
#include "door/memory/reserve.h"
#include "hub/block_file.h"
#include "util/log.h"

namespace softhca::door {
namespace {

constexpr std::uint8_t kMtu1024 = 3, kMtu4096 = 5;

/// The path MTU for packets of at most `bytes`, as uverbs::Device::active_mtu().
std::uint8_t mtu_that_fits(unsigned bytes) {
  constexpr unsigned kHeaders = 96, kHalfOfLeast = 128;
  auto mtu = kMtu4096;
  while (mtu > 1 && bytes < (kHalfOfLeast << mtu) + kHeaders) --mtu;
  return mtu;
}

/// Memory that a device takes, and some more: without it, a half-made device cannot be destroyed.
constexpr std::size_t kCardMemory = std::size_t{64} << 20;

}  // namespace

bool CardTable::make(unsigned place) {
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
       .faults = options_.faults,
       .find_mac = [this](const auto& to, auto& mac) { return find_mac(to, mac); },
       .want_mac =
           [this](const auto& to) { return resolution_ != nullptr && resolution_->want(to); },
       .owner_of =
           [this](const hub::Service& service) {
             return owner_of_ ? owner_of_(service) : std::nullopt;
           }});
  if (!made) {
    util::log(util::LogLevel::kError, "mlx5_{}: {}", number, made.error().message);
    return false;
  }
  const std::lock_guard held(lock_);
  cards_[place] = *std::move(made);
  waker_.wake();
  return true;
}

void CardTable::make_owners_of(const driver::Gid& to) {
  for (unsigned place = 0; place != cards_.size() && place != options_.addresses.size(); ++place) {
    if (may_have(options_.addresses[place], to)) (void)make(place);
  }
}

bool CardTable::find_mac(const driver::Gid& to, driver::Mac& mac) {
  // An address that determines its MAC needs no resolution.
  if (door::find_mac(to, mac)) {
    foreign_addresses_.look_at(to, false);
    return true;
  }
  bool found = false;
  for_each([&](const Card& card) { found = found || card.find_mac(to, mac); });
  return found;
}

bool CardTable::find_present(const driver::Gid& to, driver::Mac& mac) const {
  bool found = false;
  for_each([&](const Card& card) { found = found || card.find_present(to, mac); });
  return found;
}

bool CardTable::is_gone(const driver::Gid& peer, std::uint32_t number) const {
  constexpr unsigned kBlockShift = 24;
  // no format: a range of numbers
  const auto block = static_cast<hub::RoceBlock>(number >> kBlockShift);
  bool is_shared = false;
  for_each(
      [&](const Card& card) { is_shared = is_shared || card.shared_routes().is_shared(peer); });
  return is_shared && hub::process_of_block(options_.directory, block) == 0u;
}

void CardTable::warn_if_foreign(const driver::Gid& to) {
  bool has_sockets = false;
  for_each([&](const Card& card) { has_sockets = has_sockets || card.machines().any(); });
  foreign_addresses_.look_at(to, has_sockets);
}

void CardTable::ask(const driver::Gid& to) {
  for_each([&](Card& card) { card.ask(to); });
}

/// Processes are connected by shared memory. To other machines the kernel knows the MTU; for other
/// hosts it fits an Ethernet of 1500 bytes, Linux's default.
std::uint8_t CardTable::path_mtu(const driver::Gid& to) const {
  bool is_own = false;
  unsigned bytes = 0;
  for_each([&](const Card& card) {
    is_own = is_own || card.has_address(to);
    bytes = std::max(bytes, card.mtu_to(to));
  });
  if (is_own || is_process(to)) return kMtu4096;
  return bytes == 0 ? kMtu1024 : mtu_that_fits(bytes);
}

}  // namespace softhca::door

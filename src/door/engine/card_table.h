// The cards of a process by number, and the addresses that they know. A card is created when a call
// first needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "door/card/card.h"
#include "door/card/foreign_addresses.h"
#include "door/card/frame_loss.h"
#include "door/engine/device_lock.h"
#include "door/engine/resolution.h"
#include "door/engine/thread_waker.h"
#include "door/tree/tree.h"
#include "driver/address.h"
#include "util/clock.h"

namespace softhca::door {

class CardTable {
 public:
  struct Options {
    std::string directory;       ///< of the run; has the hub's socket
    DeviceNumbers numbers = {};  ///< of the devices that the program sees
    /// OwnAddresses::take() of each card; further cards get none.
    std::vector<std::string> addresses = {};
    FrameLoss loss = {};      ///< for all cards
    std::string faults = {};  ///< Card::Options
  };
  /// `lock` protects the cards. `waker` wakes their thread, which must wait for new ones too.
  CardTable(Options options, DeviceLock& lock, const ThreadWaker& waker)
      : options_(std::move(options)),
        lock_(lock),
        waker_(waker),
        cards_(options_.numbers.count),
        foreign_addresses_(options_.directory) {}
  CardTable(const CardTable&) = delete;
  CardTable& operator=(const CardTable&) = delete;

  /// Whether network rules may act on the cards.
  bool have_rules() const { return !options_.faults.empty(); }
  unsigned count() const { return static_cast<unsigned>(cards_.size()); }
  /// The place of mlx5_<number> among the cards. A number below the first wraps around, and so is
  /// too high.
  unsigned place_of(unsigned number) const { return number - options_.numbers.first; }

  // Call without the lock: a hub may take long to answer, and open devices must go on meanwhile.
  /// Creates the card if there is none yet. False: this failed.
  bool make(unsigned place);
  /// Creates the cards that may have the address, even if the program has not opened them: a
  /// hardware device answers for its address without being opened.
  void make_owners_of(const driver::Gid& to);

  // Call with the lock.
  /// Null: there is no such card, or it is not used yet.
  Card* find(unsigned place) const { return place < cards_.size() ? cards_[place].get() : nullptr; }
  /// Calls `visit` with each card that exists.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& card : cards_) {
      if (card != nullptr) visit(*card);
    }
  }
  /// While the result exists, a card that lacks an address stores it in `resolution`.
  [[nodiscard]] Resolution::InUse resolve_by(Resolution& resolution) {
    return {resolution_, resolution};
  }
  /// Card::find_present() over all cards.
  bool find_present(const driver::Gid& to, driver::Mac& mac) const;
  /// Whether processes share the peer's address, and the one with this number of a connection has
  /// ended.
  bool is_gone(const driver::Gid& peer, std::uint32_t number) const;
  /// Asks the network for an address.
  void ask(const driver::Gid& to);
  /// Warns if the address, which did not answer, is one of another network or has no route.
  void warn_if_foreign(const driver::Gid& to);
  /// Which address of the process has a port number of librdmacm, for the questions of other
  /// machines.
  void set_owner_of(hub::ServiceFinder::Owner owner_of) { owner_of_ = std::move(owner_of); }
  /// The path MTU as ib_mtu.
  std::uint8_t path_mtu(const driver::Gid& to) const;

 private:
  bool find_mac(const driver::Gid& to, driver::Mac& mac);

  const Options options_;
  DeviceLock& lock_;
  const ThreadWaker& waker_;
  std::vector<std::unique_ptr<Card>> cards_;  ///< by place; null: not used yet
  std::mutex making_card_;                    ///< taken before the lock
  ForeignAddresses foreign_addresses_;
  hub::ServiceFinder::Owner owner_of_;  ///< empty: the process has no port numbers
  Resolution* resolution_ = nullptr;    ///< of the call being served
};

}  // namespace softhca::door

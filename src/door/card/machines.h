// A device's way to other machines: RoCEv2 by UDP sockets of the addresses of a host interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "door/card/own_address.h"
#include "driver/address.h"
#include "fabric/switch.h"
#include "hub/roce_link.h"
#include "util/inspection.h"
#include "util/time_source.h"

namespace softhca::door {

/// Without reach(), it carries nothing: the addresses are not those of a host interface.
class Machines {
 public:
  /// `directory`: of the run.
  explicit Machines(std::string directory) : directory_(std::move(directory)) {}

  /// Opens the sockets of `own`. `mac`: the device's. `name`: for messages about the device.
  void reach(fabric::Switch& network, const driver::Mac& mac, const OwnAddresses& own,
             const std::string& name, const std::string& given, const util::TimeSource& clock);
  /// Opens sockets of new addresses, and closes those of the others. Returns the number of
  /// addresses that other machines may use.
  std::size_t follow(const OwnAddresses& own);
  /// Closes the sockets in a forked child.
  void leave_to_parent();

  /// Whether there are any sockets.
  bool any() const { return roce_ != nullptr && !roce_->sockets().empty(); }
  /// Calls `visit` with each descriptor that becomes readable when frames of other machines come.
  template <class Visit>
  void for_each_socket(Visit&& visit) const {
    if (roce_ == nullptr) return;
    for (const auto& socket : roce_->sockets()) visit(socket->fd());
  }

  /// Transmits at most `frames` received packets for each address. Returns their number.
  std::size_t receive(std::size_t frames) { return roce_ == nullptr ? 0 : roce_->receive(frames); }
  /// Bytes that may be sent now, whatever their destination.
  std::size_t room() { return roce_ == nullptr ? SIZE_MAX : roce_->room(); }
  /// Makes the switch keep the router's MAC. Call about once a second.
  void announce() {
    if (roce_ != nullptr) roce_->announce();
  }

  /// To be called when stations of the hub are asked for an address.
  void ask(const driver::Gid& to) {
    if (roce_ != nullptr) roce_->ask(to);
  }
  /// The route to an address that no process of the run has.
  std::optional<hub::UdpRoute> find_route(const driver::Gid& to) const;

  /// Shows packets and losses of the sockets.
  void inspect(util::Inspection& out) const;

 private:
  const std::string directory_;
  std::unique_ptr<hub::RoceLink> roce_;  ///< null: reach() was not called, or found no interface
};

}  // namespace softhca::door

// A device's way to other machines: RoCEv2 by UDP sockets of the addresses of a host interface,
// which other processes share. The hub hands out the sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "door/card/own_address.h"
#include "driver/address.h"
#include "fabric/switch.h"
#include "hub/forwarded_datagram.h"
#include "hub/roce_link.h"
#include "hub/uplink.h"
#include "util/inspection.h"
#include "util/time_source.h"

namespace softhca::door {

/// Without reach(), it carries nothing: the addresses are not those of a host interface.
class Machines {
 public:
  /// `directory`: of the run.
  explicit Machines(std::string directory) : directory_(std::move(directory)) {}

  /// Opens the sockets of `own`, for which it waits for the hub. `mac`: the device's. `name`: for
  /// messages about the device. `link` must outlive this. @pre link.shared()
  void reach(fabric::Switch& network, const driver::Mac& mac, const OwnAddresses& own,
             const std::string& name, const std::string& given, const util::TimeSource& clock,
             hub::Uplink& link);
  /// Asks for the sockets of new addresses, opens those that the hub has granted, and closes those
  /// of other addresses. Follows the interface with the multicast groups. Returns the number of
  /// addresses that other machines may use.
  std::size_t follow(const OwnAddresses& own);
  /// A QP has joined a multicast group, or has left it. Programs of other machines reach a group as
  /// long as any QP is in it.
  void note_member(const driver::Gid& group, bool joins);
  /// Whether the hub has answered since the last call, so that follow() has something to do.
  bool take_news() { return shared_ != nullptr && shared_->take_news(); }
  /// Keeps a datagram that the hub has forwarded for the next receive().
  void keep(const hub::ForwardedDatagram& datagram);
  /// Closes the sockets in a forked child.
  void leave_to_parent();

  /// Whether there are any sockets.
  bool any() const { return roce_ != nullptr && !roce_->sockets().empty(); }
  /// Calls `visit` with each descriptor that becomes readable when frames of other machines come.
  template <class Visit>
  void for_each_socket(Visit&& visit) const {
    if (roce_ == nullptr) return;
    for (const auto& socket : roce_->sockets()) visit(socket->fd());
    if (const auto groups = roce_->multicast().fd(); groups >= 0) visit(groups);
  }

  /// Transmits at most `frames` received packets for each address, and those that the hub has
  /// forwarded. Returns their number.
  std::size_t receive(std::size_t frames) {
    return roce_ == nullptr ? 0 : deliver_kept() + roce_->receive(frames);
  }
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
  /// A forwarded datagram with its bytes.
  struct Kept {
    hub::ForwardedDatagram datagram;
    std::vector<std::byte> packet;
  };

  util::Result<std::unique_ptr<hub::RoceSocket>> open(const wire::Gid& address);
  void follow_groups(const OwnAddresses& own);
  std::size_t deliver_kept();

  const std::string directory_;
  std::unique_ptr<hub::RoceLink> roce_;  ///< null: reach() was not called, or found no interface
  const hub::Uplink* link_ = nullptr;
  hub::SharedAddresses* shared_ = nullptr;
  std::map<driver::Gid, unsigned> groups_;  ///< with the number of QPs in each
  std::vector<Kept> kept_;
  std::uint64_t forwarded_ = 0;  ///< datagrams by the hub
};

}  // namespace softhca::door

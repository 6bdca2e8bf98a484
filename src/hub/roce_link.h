// A process's way to other machines, behind a port of its own switch: RoCEv2 over UDP sockets, one
// for each of its IP addresses. To the switch it is a router: one station, whose MAC is the next
// hop of all these destinations. The kernel finds the real next hops.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/port.h"
#include "hub/patience.h"
#include "hub/roce_multicast.h"
#include "hub/roce_peers.h"
#include "hub/roce_socket.h"
#include "util/log.h"
#include "util/time_source.h"
#include "wire/mac_address.h"
#include "wire/roce_datagram.h"

namespace softhca::hub {

class RoceLink final : public fabric::Receiver {
 public:
  /// Gives the socket of an address, which the hub hands out. Null: not yet. set_addresses() asks
  /// again.
  using OpenSocket = std::function<util::Result<std::unique_ptr<RoceSocket>>(const wire::Gid&)>;

  /// Becomes the receiver of `port`, which takes trains. `mac`: of the process's device, to which
  /// received packets go.
  RoceLink(std::unique_ptr<fabric::Port> port, const wire::MacAddress& mac, util::TimeSource clock,
           OpenSocket open);
  ~RoceLink() override;

  /// The MAC of the router. No process of a hub has it (hub::mac_of).
  static wire::MacAddress mac() { return wire::MacAddress::from_u64(0x06'5f'cb'00'00'01); }
  /// Most addresses that get a socket.
  static constexpr std::size_t kAddressesMax = 16;

  /// Opens sockets of new addresses, and closes those of the others. Logs each of both.
  void set_addresses(std::span<const wire::Gid> addresses);
  const std::vector<std::unique_ptr<RoceSocket>>& sockets() const { return sockets_; }
  /// Joins the multicast groups on the interface with this index, and leaves all others. Frames of
  /// the device to any group are sent by that interface. @pre `groups` is sorted
  void set_groups(std::span<const wire::Gid> groups, unsigned interface);
  /// Joins another multicast group on the same interface.
  void join_group(const wire::Gid& group) { multicast_.join(group); }
  /// Leaves a multicast group, and allocates nothing: destructors call it.
  void leave_group(const wire::Gid& group) { multicast_.leave(group, *port_); }
  const RoceMulticast& multicast() const { return multicast_; }
  /// Closes the sockets in a forked child.
  void leave_to_parent();

  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}  // nothing is looped back
  bool takes_trains() const override { return true; }

  /// Transmits at most `frames` received packets for each address. Returns their number.
  std::size_t receive(std::size_t frames);
  /// Transmits a packet that another process has received for this one, as receive() does. False:
  /// it is no packet. Allocates.
  bool deliver(std::span<const std::byte> datagram, const wire::DatagramPath& path);
  /// Bytes that may be sent now, whatever their destination: see Uplink::room().
  std::size_t room();
  /// Makes the switch learn or keep the router's MAC. Call about once a second.
  void announce();

  /// To be called when stations of the hub are asked for `address`.
  void ask(const wire::Gid& address) { peers_.ask(address, clock_()); }
  /// The route to an address that no station of the hub has. Nothing: it may still answer, or the
  /// kernel has no route.
  std::optional<UdpRoute> find(const wire::Gid& address) const;

  /// Frames that no socket can carry: not RoCEv2, to the router but a group, or from another
  /// address.
  std::uint64_t unfit() const { return unfit_; }

 private:
  bool has_socket(const wire::Gid& address) const;
  void refuse(const wire::Gid& address, std::string_view reason);
  bool make(wire::RoceDatagram& datagram, const wire::Frame& frame, std::uint16_t position) const;
  void note_unfit(const wire::Frame& frame);
  void send_to_group(const wire::Frame& frame);
  void send_train(const wire::Frame& train);
  void send(std::size_t count);
  void report(const RoceSocket::Complaint& complaint);

  std::unique_ptr<fabric::Port> port_;
  const util::TimeSource clock_;
  const OpenSocket open_;
  const wire::MacAddress device_mac_;
  wire::DatagramReader reader_;
  RocePeers peers_;
  RoceMulticast multicast_{mac(), clock_};
  unsigned interface_ = 0;  ///< of groups
  std::vector<std::unique_ptr<RoceSocket>> sockets_;
  std::vector<wire::Gid> refused_;  ///< addresses without a socket
  /// Packets of a train, and the datagrams of what is being sent.
  std::vector<wire::Frame> packets_{RoceSocket::kSendMax};
  std::vector<wire::RoceDatagram> datagrams_{RoceSocket::kSendMax};
  Patience patience_{Patience::kLeast};
  bool has_sent_ = false;  ///< the kernel's buffers may hold packets
  std::uint64_t unfit_ = 0;
  bool has_warned_of_v1_ = false;
  util::RateLimiter lines_{4, std::chrono::seconds(10)};  ///< of the log
};

}  // namespace softhca::hub

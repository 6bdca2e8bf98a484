// A trunk on a UDP socket of an event loop.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <bitset>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hub/other_hubs.h"
#include "os/alarm.h"
#include "os/event_loop.h"
#include "os/unique_fd.h"
#include "trunk/address.h"
#include "trunk/trunk.h"
#include "util/result.h"

namespace softhca::trunk {

/// The default UDP port of a hub that is joined. 4791 is RoCEv2's.
inline constexpr std::uint16_t kPort = 24791;

/// Resolves "HOST", "HOST:PORT" or "[ADDRESS]:PORT". May ask name servers. `family`: of the address
/// that is wanted, if the host has several.
util::Result<Address> resolve(const std::string& text, int family = AF_UNSPEC);
/// The family of the addresses that a hub can join which listens there.
int family_of(const Address& listen);
/// Parses "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT", of this machine.
util::Result<Address> parse_listen(const std::string& text);

class UdpTrunk final : public hub::OtherHubs, private Out {
 public:
  struct Options {
    std::string fabric;
    Key key{};
    Address listen;  ///< zeros: any address and port
    std::vector<Target> targets = {};
    std::function<void(unsigned block, const std::bitset<256>& living)> far = {};
  };

  /// `loop` must outlive it.
  static util::Result<std::unique_ptr<UdpTrunk>> create(os::EventLoop& loop, Options options);
  /// Says goodbye to all hubs.
  ~UdpTrunk() override;
  UdpTrunk(const UdpTrunk&) = delete;
  UdpTrunk& operator=(const UdpTrunk&) = delete;

  void attach(std::unique_ptr<fabric::Port> port, IsFull is_full,
              std::function<void()> raise) override;
  void detach() override;
  bool has(unsigned number) const override { return trunk_.has(number); }
  bool may_give(unsigned number) const override { return trunk_.may_give(number); }
  void handle_member(unsigned number, bool is_there) override;
  bool must_wait(std::span<const std::byte> frame) override { return trunk_.must_wait(frame); }
  Received receive(std::size_t& frames) override;
  void settle() override;

  bool claim(unsigned block) { return trunk_.claim(block); }
  const Sessions& sessions() const { return trunk_.sessions(); }
  /// The address of the socket.
  const Address& address() const { return address_; }
  /// A line for the user: the address, and the hubs that are joined.
  std::string line() const;
  void inspect(util::InspectNode& node) const;

 private:
  /// Datagrams of one system call.
  static constexpr std::size_t kBatch = 32;

  /// Memory of datagrams for recvmmsg(2) and sendmmsg(2).
  struct Batch {
    Batch();

    std::vector<std::byte> bytes;
    std::array<sockaddr_storage, kBatch> addresses{};
    std::array<iovec, kBatch> parts{};
    std::array<mmsghdr, kBatch> messages{};
    std::size_t at = 0;
    std::size_t end = 0;
  };

  UdpTrunk(os::EventLoop& loop, Options options);
  util::Result<void> open(const Address& listen);
  void send(const Address& to, std::span<const std::byte> datagram) override;
  bool fill();
  void flush();
  void handle_socket(std::uint32_t events);
  void handle_alarm();
  void arm();

  os::EventLoop& loop_;
  os::UniqueFd socket_;
  int family_ = AF_INET6;
  Address address_;
  Batch in_;
  Batch out_;
  bool readable_ = false;
  std::uint64_t lost_ = 0;  ///< datagrams that the socket had no room for
  std::function<void()> raise_;
  std::unique_ptr<os::Alarm> alarm_;
  util::Time alarm_at_ = util::kNever;
  Trunk trunk_;
};

}  // namespace softhca::trunk

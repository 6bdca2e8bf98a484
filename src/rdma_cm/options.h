// The surroundings of the manager: devices, port numbers, and the addresses of the network.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "cm/connections.h"
#include "rdma_cm/identifier.h"
#include "util/clock.h"
#include "uverbs/device.h"

namespace softhca::rdma_cm {

/// 0, or a number of errno.h.
using Errno = int;

/// How long requests wait for a new listener on a number. perftest's -R closes its listener while
/// an accepted connection goes on, then listens on the same number again. The client may be
/// faster.
inline constexpr util::Duration kListenAgain = std::chrono::seconds(3);

/// Port numbers, the last included.
struct PortRange {
  std::uint16_t first = 32768, last = 60999;  ///< Linux's default of ip_local_port_range
};

/// Port numbers of all programs, as if they shared one host.
class PortNumbers {
 public:
  virtual ~PortNumbers() = default;
  /// Claims a number for the program at address `own`, either for that address alone or for `any`
  /// address. If another program has the number: EADDRNOTAVAIL or EADDRINUSE, as on Linux.
  virtual Errno claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own,
                      bool any) = 0;
  /// `returns`: the program will probably claim the number again, perhaps in another port space.
  virtual void release(std::uint16_t port_space, std::uint16_t port, bool returns) = 0;
  /// The address of the program that has the number, or that will probably claim it.
  virtual std::optional<driver::Gid> find(std::uint16_t port_space, std::uint16_t port) = 0;
  /// The range of numbers for programs that let the kernel choose.
  virtual PortRange free_numbers() const { return {}; }
};

/// A device. Its addresses are the RoCE v2 entries of its GID table.
struct DevicePort {
  uverbs::Device& device;
  std::uint64_t node_guid = 0;    ///< as in sysfs
  std::uint8_t number_block = 0;  ///< cm::Network::number_block
};

/// A service of a listener, and the addresses of devices at which it listens.
struct ListenerService {
  enum class Family : std::uint8_t { kBoth, kIpv4, kIpv6 };

  std::uint64_t service = 0;
  std::optional<unsigned> port;  ///< of the device that has `address`; nothing: all devices
  driver::Gid address;
  Family family = Family::kBoth;  ///< of the addresses of all devices
};

struct Options {
  PortNumbers& port_numbers;
  /// Whether an address is known to belong to this network (is_member), or to this machine
  /// (is_local).
  std::function<bool(const driver::Gid&)> is_member;
  std::function<bool(const SocketAddress&)> is_local;
  /// Starts resolving an address, after which is_member() may find it. Empty: is_member is
  /// complete.
  std::function<void(const driver::Gid&)> ask = {};
  // The programs of other machines by an address of the machine, and the port number. All are empty
  // if there are no other machines, or if each of their addresses belongs to one program.
  /// Asks for the program; find_service() may find it afterwards.
  std::function<void(const SocketAddress& to, std::uint16_t port_space)> ask_service = {};
  /// The address of the program that has answered.
  std::function<std::optional<driver::Gid>(const SocketAddress& to, std::uint16_t port_space)>
      find_service = {};
  /// Forgets the answer, which may be out of date.
  std::function<void(const SocketAddress& to, std::uint16_t port_space)> forget_service = {};
  /// Called when no station has answered for an address within the program's time.
  std::function<void(const driver::Gid&)> on_unresolved = {};
  /// The path MTU to a peer, as ib_mtu. Empty: that of the port.
  std::function<std::uint8_t(const driver::Gid& to)> path_mtu = {};
  /// Whether a peer's process has ended without disconnecting.
  cm::Connections::Gone is_gone = {};
  /// Called when an identifier begins to listen, and when it no longer does. False: it cannot, as
  /// there are too many. Empty: requests need no registration.
  std::function<bool(const ListenerService&)> on_listen = {};
  std::function<void(const ListenerService&)> on_unlisten = {};
};

}  // namespace softhca::rdma_cm

// Sources, destinations and paths of identifiers, in place of Linux's routing table.
#pragma once

#include <cstdint>
#include <optional>

#include "rdma_cm/identifier.h"
#include "rdma_cm/ip_service.h"
#include "rdma_cm/options.h"
#include "rdma_cm/ports.h"

namespace softhca::rdma_cm {

class Routes {
 public:
  Routes(const Ports& ports, const Options& options) : ports_(ports), options_(options) {}

  /// 0 if there may be a route to `to`.
  Errno check(const Identifier& id, const SocketAddress& to) const;
  /// The destination of an identifier's messages. Nothing: it is not resolved.
  std::optional<driver::Gid> resolve(const Identifier& id) const;
  /// Sets the destination of its messages, and chooses their source.
  void set_peer(Identifier& id, const driver::Gid& peer) const;
  /// Sets the path of its connection. @pre id.connection.peer is known
  void set_path(Identifier& id) const;
  /// An ib_mtu. @pre id.connection.local is known
  std::uint8_t path_mtu(const Identifier& id, const driver::Gid& to) const;
  /// Whether it goes to an address of the machine that no device has, such as 127.0.0.1.
  bool is_to_this_machine(const Identifier& id) const;
  /// The addresses of a request. A connection to an address of the machine also comes from one.
  IpAddresses addresses(const Identifier& id) const;

 private:
  const Ports& ports_;
  const Options& options_;
};

}  // namespace softhca::rdma_cm

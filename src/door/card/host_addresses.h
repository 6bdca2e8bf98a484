// Follows the IP addresses of an interface of the host (rtnetlink(7)), and reads its MTU.
#pragma once

#include <string>
#include <vector>

#include "driver/address.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::door {

class HostAddresses {
 public:
  /// Follows the interface of this name, which may be created later.
  static util::Result<HostAddresses> follow(std::string interface);

  const std::string& interface() const { return interface_; }
  /// The interface's index; 0: there is none of that name.
  unsigned index() const;
  /// Readable when addresses have changed.
  int fd() const { return socket_.get(); }
  /// Whether anything has changed since the last call.
  bool changed();
  /// Its addresses in the kernel's order, IPv4 before IPv6. Link-local IPv6 addresses are left out:
  /// they are formed from the interface's MAC, not the device's. Loopback addresses (127.0.0.0/8,
  /// ::1) are left out too.
  std::vector<driver::Gid> read() const;

 private:
  HostAddresses(std::string interface, os::UniqueFd socket)
      : interface_(std::move(interface)), socket_(std::move(socket)) {}

  std::string interface_;
  os::UniqueFd socket_;
};

/// The MTU of an interface in bytes; 0: not known.
unsigned mtu_of(unsigned interface);

}  // namespace softhca::door

// The IP addresses of an interface of the host, as they come and go (rtnetlink(7)).
#pragma once

#include <string>
#include <vector>

#include "driver/address.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::door {

class HostAddresses {
 public:
  /// Of the interface of this name, which may come later.
  static util::Result<HostAddresses> follow(std::string interface);

  const std::string& interface() const { return interface_; }
  /// The interface's number; 0: there is none of that name.
  unsigned index() const;
  /// Readable when addresses have changed.
  int fd() const { return socket_.get(); }
  /// Something has changed since the last call.
  bool changed();
  /// Its addresses, in the order in which the kernel has them, IPv4 before IPv6. Those of IPv6 that
  /// are link-local follow from an Ethernet address, which is the interface's and not the device's:
  /// they are left out, as are those of the host itself (127.0.0.0/8, ::1).
  std::vector<driver::Gid> read() const;

 private:
  HostAddresses(std::string interface, vfio_user::UniqueFd socket)
      : interface_(std::move(interface)), socket_(std::move(socket)) {}

  std::string interface_;
  vfio_user::UniqueFd socket_;
};

}  // namespace softhca::door

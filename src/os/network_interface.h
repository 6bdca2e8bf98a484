// The link state and the MTU of a network interface, as they change (rtnetlink(7)).
#pragma once

#include <string>
#include <utility>

#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::os {

class NetworkInterface {
 public:
  struct State {
    bool exists = false;
    bool up = false;       ///< an administrator has set it up
    bool carrier = false;  ///< it is up, and its link has a partner
    unsigned mtu = 0;      ///< bytes of a packet, without its Ethernet header

    friend bool operator==(const State&, const State&) = default;
  };

  /// Reads the state of the interface with this index, and follows it.
  static util::Result<NetworkInterface> follow(unsigned index);

  const State& state() const { return state_; }
  /// Readable when messages wait for update().
  int fd() const { return socket_.get(); }
  /// Reads one datagram of messages. True if the state has changed.
  bool update();

 private:
  NetworkInterface(UniqueFd socket, unsigned index) : socket_(std::move(socket)), index_(index) {}
  bool ask();
  bool read_messages();

  UniqueFd socket_;
  unsigned index_;
  State state_;
};

/// A name that the kernel takes for an interface, and that is no pattern.
util::Result<void> check_interface_name(const std::string& name);

}  // namespace softhca::os

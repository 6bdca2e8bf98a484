// The addresses of a device of a process, and a locked file for each address. Processes share the
// addresses of a host interface. If several processes are given the same other address, the first
// gets it. The lock ends with the process, so others see when it has gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "door/card/host_addresses.h"
#include "driver/address.h"
#include "os/unique_fd.h"
#include "util/clock.h"

namespace softhca::door {

class OwnAddresses {
 public:
  /// `given`: the word of `softhca run --address` for this device. It is an address, "if:NAME" for
  /// those of a host interface, or empty. An address that another process of the run has is taken
  /// only if both have it from an interface. If `given` is empty, or the interface has no IPv4
  /// address, the IPv4 address follows from `number`, the process's number on the hub. `directory`:
  /// of the run. `patience`: how long to wait for another process of the run that is taking its
  /// addresses.
  static OwnAddresses take(const std::string& directory, unsigned number, const std::string& given,
                           util::Duration patience = std::chrono::seconds(10));

  /// The first one is an IPv4 address.
  const std::vector<driver::Gid>& all() const { return all_; }
  /// Follows the interface. True: addresses have changed. Never blocks: while another process takes
  /// its addresses, the update is left to the next call.
  bool refresh();
  /// Readable when refresh() may find something; -1: never.
  int changes() const { return host_ ? host_->fd() : -1; }
  /// Whether the addresses are those of a host interface.
  bool follows_host() const { return host_.has_value(); }
  /// The index of that interface; 0: none.
  unsigned interface_index() const { return host_ ? host_->index() : 0; }
  /// In a forked child: the parent keeps the addresses.
  void leave() {
    locks_.clear();
    host_.reset();
  }

 private:
  struct Before {
    bool operator()(const driver::Gid& a, const driver::Gid& b) const { return a.bytes < b.bytes; }
  };

  enum class Claim : std::uint8_t { kAlone, kShared };
  /// False: another process has it, and does not share it.
  bool claim(const driver::Gid& gid, Claim how);
  void read_host();

  std::string directory_;
  unsigned number_ = 0;
  std::vector<driver::Gid> all_;
  std::map<driver::Gid, os::UniqueFd, Before> locks_;
  std::optional<HostAddresses> host_;
  bool has_changed_ = false;  ///< the host's addresses changed, but all_ is not updated yet
};

/// Whether `given` (OwnAddresses::take) means the addresses of a host interface.
bool names_interface(const std::string& given);
/// Whether a device that is given `given` (OwnAddresses::take) may have this address: an interface
/// of the host has any.
bool may_have(const std::string& given, const driver::Gid& gid);
/// Whether a process of the run has this address. Knows IPv4 addresses only.
bool is_of_run(const std::string& directory, const driver::Gid& gid);
/// Whether all processes that had this address have ended. False also if no process of the run had
/// it, or if a process of another machine may have it now.
bool is_gone(const std::string& directory, const driver::Gid& gid);

}  // namespace softhca::door

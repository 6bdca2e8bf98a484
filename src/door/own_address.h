// The addresses of a device of a process, and files that are locked while it lives: so that an
// address which is given to many is that of the first, and others see when a process has gone,
// however it went.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "door/host_addresses.h"
#include "driver/address.h"
#include "util/clock.h"
#include "vfio_user/unique_fd.h"

namespace softhca::door {

class OwnAddresses {
 public:
  /// `given`: what `softhca run --address` says for this device. An address, or "if:NAME", those of
  /// an interface of the host, as long as no other process of the run has it; or nothing. Then, and
  /// where the interface has no IPv4 address, it is that of place `number` of the hub.
  /// `directory`: of the run.
  /// `patience`: for a process of the run that is in the middle of taking its own.
  static OwnAddresses take(const std::string& directory, unsigned number, const std::string& given,
                           util::Duration patience = std::chrono::seconds(10));

  /// The first one is of IPv4.
  const std::vector<driver::Gid>& all() const { return all_; }
  /// Follows the interface. True: some are others. Does not wait: while another process takes its
  /// addresses, the next call does it.
  bool refresh();
  /// Readable when refresh() may find something; -1: never.
  int changes() const { return host_ ? host_->fd() : -1; }
  /// The number of that interface; 0: there is none.
  unsigned interface_index() const { return host_ ? host_->index() : 0; }
  /// The parent has them.
  void leave() {
    locks_.clear();
    interface_lock_.reset();
    host_.reset();
  }

 private:
  struct Before {
    bool operator()(const driver::Gid& a, const driver::Gid& b) const { return a.bytes < b.bytes; }
  };

  /// False: another process has it.
  bool claim(const driver::Gid& gid);
  void read_host();

  std::string directory_;
  unsigned number_ = 0;
  std::vector<driver::Gid> all_;
  std::map<driver::Gid, vfio_user::UniqueFd, Before> locks_;
  std::optional<HostAddresses> host_;
  bool has_changed_ = false;  ///< the host, and all_ does not follow yet
  vfio_user::UniqueFd interface_lock_;
};

/// The process that had this address has ended. False also for who is no process of the run.
bool is_gone(const std::string& directory, const driver::Gid& gid);

}  // namespace softhca::door

// Warnings about destinations that no process of the network has. Two programs on different
// networks may exchange addresses by TCP, and then wait for each other without an error.
#pragma once

#include <set>
#include <string>

#include "driver/address.h"

namespace softhca::door {

class ForeignAddresses {
 public:
  /// `directory`: of the run.
  explicit ForeignAddresses(std::string directory) : directory_(std::move(directory)) {}

  /// Warns if `to` is in the range of processes but no process of this network has it. With
  /// `has_sockets`, the devices reach other machines, but not `to`: then warns of any address.
  /// Checks each address once.
  void look_at(const driver::Gid& to, bool has_sockets);

 private:
  struct Before {
    bool operator()(const driver::Gid& a, const driver::Gid& b) const { return a.bytes < b.bytes; }
  };

  const std::string directory_;
  std::set<driver::Gid, Before> warned_;
};

}  // namespace softhca::door

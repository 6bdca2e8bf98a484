// Addresses that a program wants to reach and that no process of its network has: two programs on
// different networks exchange addresses by TCP, and then wait for each other without a word.
#pragma once

#include <set>
#include <string>

#include "driver/address.h"

namespace softhca::door {

class Strangers {
 public:
  /// `directory`: of the run.
  explicit Strangers(std::string directory) : directory_(std::move(directory)) {}

  /// Warns if it is the address of a process, and no process of this network has it. Looks once at
  /// each address.
  void look_at(const driver::Gid& to);

 private:
  struct Before {
    bool operator()(const driver::Gid& a, const driver::Gid& b) const { return a.bytes < b.bytes; }
  };

  const std::string directory_;
  std::set<driver::Gid, Before> seen_;
};

}  // namespace softhca::door

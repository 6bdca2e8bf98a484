// The living processes of other machines' hubs, as a file in the fabric's directory: bit n of it is
// the process with number n. The hub writes it, and processes read it.
#pragma once

#include <bitset>
#include <string>

#include "hub/numbers.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::hub {

class FarMembers {
 public:
  static util::Result<FarMembers> create(const std::string& directory);

  /// Numbers of a block that live (numbers.h). @pre block < 256
  void set(unsigned block, const std::bitset<Numbers::kBlock>& living);

 private:
  explicit FarMembers(os::UniqueFd file) : file_(std::move(file)) {}

  os::UniqueFd file_;
};

/// Whether the fabric may be joined with those of other machines.
bool has_far_members(const std::string& directory);
/// Whether the process lives on another machine. False also if no hub of another machine is joined.
bool is_far_member(const std::string& directory, unsigned number);

}  // namespace softhca::hub

// The numbers that a hub gives to its processes. Addresses of 198.18.0.0/16 and MACs are made from
// them, so two hubs of a network namespace give different ones while they can.
//
// Numbers come in blocks of 256: x of 198.18.x.y. A hub gives a new number to each process that
// joins, and claims another block when one is used up. If all blocks are claimed, hubs share them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "os/unique_fd.h"

namespace softhca::hub {

class Numbers {
 public:
  static constexpr unsigned kBlock = 256;
  /// Returns a descriptor that claims block `block`: while it is open, no other hub can claim the
  /// block. Invalid: another hub has it.
  using Claim = std::function<os::UniqueFd(unsigned block)>;

  /// Numbers from 1 to `most`, the first one in block `first`. Without a claim all blocks are this
  /// hub's.
  explicit Numbers(unsigned most, unsigned first = 0, Claim claim = nullptr)
      : most_(most), last_(first * kBlock), claim_(std::move(claim)) {}

  /// The number unused for longest that is not `taken`; 0 if there is none. If other hubs have
  /// claimed all blocks, the blocks are shared.
  unsigned next(const std::function<bool(unsigned)>& taken);
  /// Releases blocks without a `used` number, except the last one.
  void give_back(const std::function<bool(unsigned first, unsigned last)>& used);

 private:
  unsigned find(const std::function<bool(unsigned)>& taken, bool claims);
  bool have(unsigned block);

  const unsigned most_;
  unsigned last_;
  const Claim claim_;
  std::map<unsigned, os::UniqueFd> blocks_;
};

/// Binds an abstract UNIX socket of a well-known name. The kernel keeps it unique in a network
/// namespace, and releases it when the process ends, however it ends.
os::UniqueFd claim_on_this_machine(unsigned block);
/// A random block, so that hubs that cannot see each other's claims rarely begin with the same one.
unsigned random_block();

}  // namespace softhca::hub

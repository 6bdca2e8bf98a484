// The numbers that a hub gives to its processes: addresses of 198.18.0.0/16 and MACs are made of
// them, so two hubs of a machine must not give the same ones.
//
// They come in blocks of 256, x of 198.18.x.y. A hub gives a new number to each process that joins,
// and goes on to another block when one is used up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "vfio_user/unique_fd.h"

namespace softhca::hub {

class Numbers {
 public:
  static constexpr unsigned kBlock = 256;
  /// A descriptor that stands for block `block`: no other hub has it while it is open. Invalid:
  /// another hub has it.
  using Claim = std::function<vfio_user::UniqueFd(unsigned block)>;

  /// Numbers from 1 to `most`, the first one in block `first`. No claim: all blocks are this hub's.
  explicit Numbers(unsigned most, unsigned first = 0, Claim claim = nullptr)
      : most_(most), last_(first * kBlock), claim_(std::move(claim)) {}

  /// One that is not `taken`, the longest unused: 0 if there is none. Where other hubs have all
  /// blocks, they are shared.
  unsigned next(const std::function<bool(unsigned)>& taken);
  /// Blocks of which no number is `used` are given back, but for the last one.
  void give_back(const std::function<bool(unsigned first, unsigned last)>& used);

 private:
  unsigned find(const std::function<bool(unsigned)>& taken, bool claims);
  bool have(unsigned block);

  const unsigned most_;
  unsigned last_;
  const Claim claim_;
  std::map<unsigned, vfio_user::UniqueFd> blocks_;
};

/// An abstract UNIX socket of a well-known name: the kernel keeps it unique in a network namespace,
/// and it goes with the process, whoever kills that.
vfio_user::UniqueFd claim_on_this_machine(unsigned block);
/// Any, so that hubs that cannot see each other's claims are unlikely to begin with the same one.
unsigned random_block();

}  // namespace softhca::hub

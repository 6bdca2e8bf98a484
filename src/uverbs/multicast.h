// Multicast groups of QPs (kernel interface 4.11).
#pragma once

#include <span>

#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Attaches QPs to groups, and detaches them.
class MulticastCommands {
 public:
  explicit MulticastCommands(const OpenFile& file) : file_(file) {}

  static std::span<const WriteCommand<MulticastCommands>> write_commands();

 private:
  Errno attach_mcast(Request& request);
  Errno detach_mcast(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs

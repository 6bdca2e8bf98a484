// Why an access to memory behind a peer failed: a page is absent, or does not grant the access.
// RemoteMemory notes it, so that a memory key can distinguish it from memory that is not reachable
// at all.
#pragma once

#include <utility>

namespace softhca::pcie {

class AbsentPages {
 public:
  static void note() { met_ = true; }
  /// True if this thread found an absent page since the last call.
  static bool take() { return std::exchange(met_, false); }

 private:
  static constinit inline thread_local bool met_ = false;
};

}  // namespace softhca::pcie

// Why memory that a peer reaches for us could not be reached: a page of it is not there, or does
// not grant the access. Its RemoteMemory notes that; a memory key then tells it from memory that is
// out of reach altogether.
#pragma once

#include <utility>

namespace softhca::pcie {

class AbsentPages {
 public:
  static void note() { met_ = true; }
  /// True if one was met in this thread since the last call.
  static bool take() { return std::exchange(met_, false); }

 private:
  static constinit inline thread_local bool met_ = false;
};

}  // namespace softhca::pcie

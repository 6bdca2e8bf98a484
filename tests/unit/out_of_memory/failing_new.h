// Lets one allocation of this thread fail, wherever it is.
#pragma once

#include <cstdint>

namespace softhca::testing {

/// Allocations count while one exists.
class Watched {
 public:
  Watched();
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

/// The `nth` watched allocation from now on fails with std::bad_alloc, once; 0: none.
void fail_allocation(std::uint64_t nth);
/// Whether it has.
bool allocation_failed();

/// False where the run-time brings an operator new of its own that cannot be replaced.
bool can_fail_allocations();

}  // namespace softhca::testing

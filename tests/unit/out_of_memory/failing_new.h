// Makes one chosen allocation of this thread fail.
#pragma once

#include <cstdint>

namespace softhca::test {

/// Allocations count only while a Watched exists.
class Watched {
 public:
  Watched();
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

/// The `nth` watched allocation from now on throws std::bad_alloc, once. 0 disables it.
void fail_allocation(std::uint64_t nth);
/// True if that allocation has failed.
bool allocation_failed();

/// False if the run-time has an operator new of its own that cannot be replaced.
bool can_fail_allocations();

}  // namespace softhca::test

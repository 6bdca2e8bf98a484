// Memory that a program registers: hardware has its pages pinned, and finds out then what is not
// there, or may not be accessed so.
#pragma once

#include <cstdint>

#include "uverbs/request.h"

namespace softhca::uverbs {

/// Whether Linux pins pages for writing, with these ib_access_flags (ib_access_writable()).
constexpr bool is_writable(std::uint32_t access) {
  constexpr std::uint32_t kLocalWrite = 1, kRemoteWrite = 2, kRemoteAtomic = 8, kBind = 16;
  return (access & (kLocalWrite | kRemoteWrite | kRemoteAtomic | kBind)) != 0;
}

/// Makes sure that all pages of [address, address + size) are there, and that the program itself
/// may read them, or write to them: EFAULT if not.
Errno pin(std::uint64_t address, std::uint64_t size, bool is_written);
/// The same page by page, for kernels before 5.14. Changes no byte.
Errno probe(std::uint64_t address, std::uint64_t size, bool is_written);

/// Pins what a request of this thread is about to register, before anybody's lock is taken: it may
/// take seconds. While this lives, pin() of the same has that answer.
class PinnedAhead {
 public:
  /// `argument`: of ioctl(RDMA_VERBS_IOCTL), which may be anything.
  PinnedAhead(const UserMemory& memory, std::uint64_t argument);
  ~PinnedAhead();
  PinnedAhead(const PinnedAhead&) = delete;
  PinnedAhead& operator=(const PinnedAhead&) = delete;
};

}  // namespace softhca::uverbs

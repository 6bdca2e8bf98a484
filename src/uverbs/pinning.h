// Pinning of registered memory. The kernel pins the pages at registration, so that is when missing
// pages and forbidden accesses show.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "uverbs/abi.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// Whether Linux pins pages for writing with these ib_access_flags (ib_access_writable()).
constexpr bool is_writable(std::uint32_t access) {
  return (access & (kLocalWrite | kRemoteWrite | kRemoteAtomic | kBindWindow)) != 0;
}

/// Makes all pages of [address, address + size) present. EFAULT if the program itself may not read
/// them (if `is_written`: write to them), or if one is a device's page.
Errno pin(const UserMemory& memory, std::uint64_t address, std::uint64_t size, bool is_written);
/// The same page by page, for kernels before 5.14. Changes no byte.
Errno probe(std::uint64_t address, std::uint64_t size, bool is_written);

/// Returns the ib_access_flags of the region with this handle; nothing if there is none.
using RegionAccess = std::function<std::optional<std::uint32_t>(std::uint32_t handle)>;

/// Pins the memory that this thread's next request registers, before any lock is taken: pinning may
/// take seconds. While this lives, pin() of the same memory returns its result.
class PinnedAhead {
 public:
  /// `argument`: the untrusted argument of ioctl(RDMA_VERBS_IOCTL). `access_of` is called only if
  /// a region gets other memory and keeps its access flags.
  PinnedAhead(const UserMemory& memory, std::uint64_t argument, const RegionAccess& access_of);
  ~PinnedAhead();
  PinnedAhead(const PinnedAhead&) = delete;
  PinnedAhead& operator=(const PinnedAhead&) = delete;
};

}  // namespace softhca::uverbs

#include "uverbs/region_rules.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>
#include <cstdint>

#include "uverbs/abi.h"
#include "uverbs/device.h"
#include "uverbs/pinning.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

namespace {

/// IB_ACCESS_SUPPORTED: the named flags, and those that a device may ignore.
constexpr std::uint32_t kKnownAccess = 0x3ff | IB_UVERBS_ACCESS_OPTIONAL_RANGE;

/// The checks of ib_check_mr_access.
Errno check_access(std::uint32_t flags) {
  const bool writes_remotely = (flags & (kRemoteWrite | kRemoteAtomic)) != 0;
  if (writes_remotely && (flags & kLocalWrite) == 0) return EINVAL;
  if ((flags & ~kKnownAccess) != 0) return EINVAL;
  return (flags & kFlushAccess) != 0 ? EOPNOTSUPP : 0;
}

/// ib_init_umem_odp: on-demand memory need not be present or mappable, but it needs a page list.
Errno check_on_demand(const ib_uverbs_reg_mr& in) {
  constexpr std::uint64_t kPagesEnd = std::uint64_t{1} << 28;  // 8 bytes each: 2 GiB in Linux
  const auto end = in.start + in.length;
  const auto last = (end + kPage - 1) & ~(kPage - 1);
  if (end < in.start || last < kPage) return EOVERFLOW;
  const auto pages = (last - (in.start & ~(kPage - 1))) / kPage;
  if (pages == 0) return EINVAL;
  return pages >= kPagesEnd ? ENOMEM : 0;
}

/// The checks of ib_umem_get.
Errno check_pinned(const ib_uverbs_reg_mr& in) {
  const auto end = in.start + in.length;
  if (in.length == 0 || end < in.start || end + kPage - 1 < end) return EINVAL;
  const auto first = in.start & ~(kPage - 1);
  if ((end - first + kPage - 1) / kPage > UINT32_MAX) return EINVAL;
  return end > Device::kProgramMemory ? EFAULT : 0;
}

}  // namespace

bool is_implicit(const ib_uverbs_reg_mr& in) {
  return in.start == 0 && in.length == UINT64_MAX && (in.access_flags & kOnDemand) != 0;
}

Errno check_region(const ib_uverbs_reg_mr& in) {
  if (in.start % kPage != in.hca_va % kPage) return EINVAL;
  if (const auto wrong = check_access(in.access_flags); wrong != 0) return wrong;
  if (is_implicit(in)) {
    return in.hca_va != 0 || (in.access_flags & kHugePages) != 0 ? EINVAL : 0;
  }
  return (in.access_flags & kOnDemand) != 0 ? check_on_demand(in) : check_pinned(in);
}

Errno populate_region(const UserMemory& memory, const ib_uverbs_reg_mr& in) {
  if ((in.access_flags & kOnDemand) != 0) return 0;
  return pin(memory, in.start, in.length, is_writable(in.access_flags));
}

Errno lock_region(const UserMemory& memory, const ib_uverbs_reg_mr& in, LockedPages& pages) {
  if ((in.access_flags & kOnDemand) != 0) return 0;
  return pages.take(memory.locked(), in.start, in.length);
}

}  // namespace softhca::uverbs

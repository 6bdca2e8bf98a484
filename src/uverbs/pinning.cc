#include "uverbs/pinning.h"

#include <sys/mman.h>

#include <cerrno>

#include "uverbs/program_pages.h"

namespace softhca::uverbs {

Errno pin(std::uint64_t address, std::uint64_t size, bool is_written) {
  if (size == 0) return 0;
  const auto first = address - address % kPage;
  const int advice = is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (::madvise(reinterpret_cast<void*>(first), pages_of(address, size) * kPage, advice) == 0) {
    return 0;
  }
  if (errno == EINVAL) return 0;  // a kernel that cannot
  return errno == ENOMEM ? EFAULT : errno;
}

}  // namespace softhca::uverbs

#include "site.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace softhca::bad_network {
namespace {

using driver::test::must;

#if defined(__SANITIZE_THREAD__)
#define SOFTHCA_ANY_ADDRESS
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTHCA_ANY_ADDRESS
#endif
#endif

#ifdef SOFTHCA_ANY_ADDRESS
// This sanitizer decides where memory may be.
constexpr std::uintptr_t kAddress = 0;
constexpr int kFixed = 0;
#else
constexpr std::uintptr_t kAddress = 0x2000'0000'0000;
constexpr int kFixed = MAP_FIXED_NOREPLACE;
#endif

/// Room for every request of seven connections, and the datagrams.
constexpr unsigned kEntries = 512;

}  // namespace

HostMemory::HostMemory(std::size_t size) {
  // The kernel refuses an address that is taken.
  void* const at = ::mmap(reinterpret_cast<void*>(kAddress), size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | kFixed, -1, 0);
  promise(at != MAP_FAILED, "no memory at {:#x}", kAddress);
  bytes_ = {static_cast<std::byte*>(at), size};
}

HostMemory::~HostMemory() { ::munmap(bytes_.data(), bytes_.size()); }

Site::Site(Fleet& fleet, unsigned its_host, std::span<std::byte> its_memory)
    : host(its_host),
      memory(its_memory),
      pd(must(fleet.device(host).allocate_pd())),
      region(must(pd.register_memory(memory, driver::MemoryAccess::all()))),
      sends(must(fleet.device(host).create_cq(kEntries))),
      receives(must(fleet.device(host).create_cq(kEntries))) {
  std::ranges::fill(memory, std::byte{0});
  driver::test::fill(memory.first(Places::kPatternSize), host + 1);
}

std::uint64_t Site::load(std::size_t offset) const {
  std::uint64_t value = 0;
  std::memcpy(&value, memory.data() + offset, sizeof value);
  return value;
}

}  // namespace softhca::bad_network

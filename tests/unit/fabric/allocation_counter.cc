#include "allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> allocations{0};
std::atomic<std::ptrdiff_t> bytes{0};
}  // namespace

namespace softhca::fabric {
std::size_t allocation_count() { return allocations.load(); }
std::ptrdiff_t allocated_bytes() { return bytes.load(); }
}  // namespace softhca::fabric

#ifndef SOFTHCA_OPERATOR_NEW_IS_TAKEN
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) {
    bytes += static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  bytes -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
#endif

#include "failing_new.h"

#include <cstdlib>
#include <new>

namespace softhca::test {
namespace {

thread_local unsigned watched = 0;
thread_local std::uint64_t left = 0;  ///< allocations until one fails; 0: none fails
thread_local bool failed = false;

/// Called by every operator new.
[[maybe_unused]] bool fails_now() {
  if (watched == 0 || left == 0 || --left != 0) return false;
  failed = true;
  return true;
}

}  // namespace

Watched::Watched() { ++watched; }
Watched::~Watched() { --watched; }

void fail_allocation(std::uint64_t nth) {
  left = nth;
  failed = false;
}

bool allocation_failed() { return failed; }

}  // namespace softhca::test

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTHCA_OPERATOR_NEW_IS_TAKEN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SOFTHCA_OPERATOR_NEW_IS_TAKEN
#endif

namespace softhca::test {
bool can_fail_allocations() {
#ifdef SOFTHCA_OPERATOR_NEW_IS_TAKEN
  return false;
#else
  return true;
#endif
}
}  // namespace softhca::test

#ifndef SOFTHCA_OPERATOR_NEW_IS_TAKEN
void* operator new(std::size_t size) {
  if (softhca::test::fails_now()) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (softhca::test::fails_now()) throw std::bad_alloc();
  const auto multiple = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(multiple, (size + multiple - 1) / multiple * multiple)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

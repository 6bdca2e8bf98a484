#include "door/memory/reserve.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace softhca::door {
namespace {

/// More than a call needs, unless it registers gigabytes. The pages are never touched, so the
/// reserve takes address space and no memory.
constexpr std::size_t kReserveSize = std::size_t{1} << 20;

constinit std::atomic<void*> kept = nullptr;

/// The new-handler. This library has its own libstdc++, linked in, so the program's allocations do
/// not come here.
void give_up() {
  void* const memory = kept.exchange(nullptr);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace

void keep_reserve() {
  std::set_new_handler(give_up);
  (void)hold_reserve();
}

bool hold_reserve() {
  if (kept.load(std::memory_order_relaxed) != nullptr) return true;
  void* const memory = std::malloc(kReserveSize);
  if (memory == nullptr) return false;
  void* none = nullptr;
  if (!kept.compare_exchange_strong(none, memory)) std::free(memory);
  return true;
}

bool has_room(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  std::free(memory);
  return memory != nullptr;
}

}  // namespace softhca::door

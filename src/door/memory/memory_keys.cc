#include "door/memory/memory_keys.h"

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>

#include "util/bits.h"
#endif

namespace softhca::door {
#if defined(__x86_64__)

namespace {

/// Initial-exec: other TLS models may allocate on first access.
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint32_t rights_before = 0;

// The registers in a signal frame (Linux: arch/x86/include/uapi/asm/sigcontext.h): 512 legacy
// bytes, whose end describes what follows; then the XSAVE header and its components (Intel SDM 1,
// 13.4).
constexpr std::size_t kSoftware = 464;
constexpr std::uint32_t kMagic = 0x46505853;
constexpr std::size_t kHeader = 512;
constexpr unsigned kPart = 9;  // PKRU
constexpr unsigned kLeaf = 0xd;

std::uint32_t place_of_keys() {
  std::uint32_t size = 0, offset = 0, c = 0, d = 0;
  return __get_cpuid_count(kLeaf, kPart, &size, &offset, &c, &d) != 0 && size != 0 ? offset : 0;
}

}  // namespace

bool lift_memory_keys(void* context) {
  auto* const registers =
      reinterpret_cast<std::byte*>(static_cast<ucontext_t*>(context)->uc_mcontext.fpregs);
  const auto offset = place_of_keys();
  std::uint32_t magic = 0;
  if (registers == nullptr || offset == 0) return false;
  std::memcpy(&magic, registers + kSoftware, sizeof magic);
  if (magic != kMagic) return false;
  std::uint64_t parts = 0;
  std::memcpy(&parts, registers + kHeader, sizeof parts);
  // A missing component has its initial value, which forbids nothing.
  if (!util::has_bit(parts, kPart)) return false;
  constexpr std::uint32_t kAll = 0;
  if (!lifted_memory_keys) std::memcpy(&rights_before, registers + offset, sizeof rights_before);
  std::memcpy(registers + offset, &kAll, sizeof kAll);
  lifted_memory_keys = true;
  return true;
}

void restore_memory_keys() {
  lifted_memory_keys = false;
  asm volatile(".byte 0x0f, 0x01, 0xef"
               :
               : "a"(rights_before), "c"(0), "d"(0)
               : "memory");  // WRPKRU
}

#else

bool lift_memory_keys(void*) { return false; }
void restore_memory_keys() { lifted_memory_keys = false; }

#endif

}  // namespace softhca::door

// Memory protection keys of the processor restrict a program's threads, not devices. If a page's
// key forbids the thread an access for the device, the access is made anyway, and the thread's
// rights are restored afterwards.
#pragma once

namespace softhca::door {

/// Initial-exec: other TLS models may allocate on first access.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local bool lifted_memory_keys = false;

/// To be called in a fault handler with its ucontext_t: when the thread resumes, it may access
/// pages of every key. False: the processor has no keys.
bool lift_memory_keys(void* context);
/// Whether this thread has lifted rights since the last restore_memory_keys().
inline bool has_lifted_memory_keys() { return lifted_memory_keys; }
void restore_memory_keys();

}  // namespace softhca::door

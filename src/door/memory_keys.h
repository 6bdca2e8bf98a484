// Memory protection keys of the processor bind a program's threads, and no device: a page whose key
// forbids an access to the thread is accessed all the same, and the thread then has its rights
// back.
#pragma once

namespace softhca::door {

/// Initial-exec: the general way to a thread's variables may allocate.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local bool lifted_memory_keys = false;

/// In the handler of a fault, with its ucontext_t: the thread may access pages of every key when it
/// goes on. False: the processor has no keys.
bool lift_memory_keys(void* context);
/// Of this thread, since the last restore_memory_keys().
inline bool has_lifted_memory_keys() { return lifted_memory_keys; }
void restore_memory_keys();

}  // namespace softhca::door

// Access to memory that a guest shares. Only the guest orders its own accesses: if it races with
// itself, any bytes are acceptable, and the thread sanitizer must not report it.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTHCA_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SOFTHCA_THREAD_SANITIZER 1
#endif

#if defined(SOFTHCA_THREAD_SANITIZER)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace softhca::util {

/// While one exists, the thread sanitizer ignores this thread's reads and writes. In other builds
/// it has no effect.
class UnorderedAccess {
 public:
#if defined(SOFTHCA_THREAD_SANITIZER)
  UnorderedAccess() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~UnorderedAccess() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  UnorderedAccess() {}
#endif
  UnorderedAccess(const UnorderedAccess&) = delete;
  UnorderedAccess& operator=(const UnorderedAccess&) = delete;
};

}  // namespace softhca::util

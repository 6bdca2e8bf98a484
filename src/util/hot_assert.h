// assert() for code on the path of every packet. It is enabled in builds without optimization
// (`make check`) and under sanitizers, and disabled in fast builds, which `make test` runs.
#pragma once

#include <cassert>

#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOFTHCA_HOT_ASSERTS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOFTHCA_HOT_ASSERTS 1
#endif
#endif

#ifdef SOFTHCA_HOT_ASSERTS
#define SOFTHCA_HOT_ASSERT(condition) assert(condition)
#else
#define SOFTHCA_HOT_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#endif

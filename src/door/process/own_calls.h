// Marks the calls of libc that the library makes itself: they pass through.
#pragma once

#include <atomic>

namespace softhca::door {

/// While one exists, the thread's calls are the door's own and pass through, except for names of
/// the tree (named_paths()).
class OwnCalls {
 public:
  OwnCalls() : before_(exist_) {
    exist_ = true;
    keep_order();
  }
  ~OwnCalls() {
    keep_order();
    exist_ = before_;
  }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  /// Whether this thread has one. At the entry of a call: a signal has interrupted the door.
  static bool exist() { return exist_; }

 private:
  /// A signal handler finds the mark as long as the calls between may be under way.
  static void keep_order() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  /// Initial-exec: other TLS models may allocate on first access.
  [[gnu::tls_model("initial-exec")]] static constinit inline thread_local bool exist_ = false;

  bool before_;
};

}  // namespace softhca::door

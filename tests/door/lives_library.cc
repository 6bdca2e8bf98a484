// A shared library with a device that it closes while the process ends (lives_ends.cc). It also
// interposes calls that the door makes to libc, to hold a thread in such a call (lives_held.cc).
#include "lives_library.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

struct Owner {
  ibv_context* context = nullptr;
  ~Owner() {
    if (context != nullptr && ibv_close_device(context) == 0) std::puts("closed");
    std::fflush(stdout);
  }
};
Owner owner;

struct AtEnd {
  void (*call)() = nullptr;
  ~AtEnd() {
    if (call != nullptr) call();
    std::fflush(stdout);
  }
};
AtEnd last;

std::atomic<HeldCall> wanted = HeldCall::kNone;
std::atomic<int> beside = 0;
std::atomic<bool> held = false;
std::atomic<void (*)()> to_run = nullptr;
std::atomic<int> quota_streams = 0;

/// Whether a thread of this process sleeps, for example because it waits for a lock.
bool sleeps(int thread) {
  char name[64], text[256] = "";
  std::snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
  const auto file = ::syscall(SYS_openat, -1, name, 0);
  if (file < 0) return false;
  (void)!::syscall(SYS_read, file, text, sizeof text - 1);
  ::syscall(SYS_close, file);
  // The state follows the thread's name, which may contain any character.
  const char* const state = std::strrchr(text, ')');
  return state != nullptr && state[1] == ' ' && state[2] == 'S';
}

void pass(HeldCall call) {
  if (!wanted.compare_exchange_strong(call, HeldCall::kNone)) return;
  if (auto* const function = to_run.exchange(nullptr)) return function();
  held = true;
  while (held && (beside == 0 || !sleeps(beside))) ::sched_yield();
}

}  // namespace

extern "C" {

void open_device() {
  auto** const list = ibv_get_device_list(nullptr);
  owner.context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
}

void call_at_end(void (*call)()) { last.call = call; }

void hold_next(HeldCall call, int until_this_thread_sleeps) {
  beside = until_this_thread_sleeps;
  wanted = call;
}
bool is_held() { return held; }
void run_in(HeldCall call, void (*function)()) {
  to_run = function;
  wanted = call;
}
int opened_quota_streams() { return quota_streams; }
void let_go() { held = false; }
void hold_in_constructor() { pass(HeldCall::kConstructor); }

// Calls of libc that the door makes.

int eventfd(unsigned count, int flags) {
  pass(HeldCall::kEventfd);
  return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
}

FILE* fopen(const char* path, const char* mode) {
  using Open = FILE*(const char*, const char*);
  static auto* const next = reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, "fopen"));
  if (std::strcmp(path, "/proc/self/maps") == 0) pass(HeldCall::kMaps);
  if (std::strstr(path, "cgroup") != nullptr) ++quota_streams;
  return next(path, mode);
}
}

// Functions of the shared library that the cases use (lives_library.cc).
#pragma once

/// A call in which a thread can be held.
enum class HeldCall {
  kNone,
  kConstructor,  ///< of lives_slow.cc, as it is loaded
  kEventfd,      ///< in the middle of the first open() of a device file
  kMaps,         ///< a stream of /proc/self/maps: the door looks for doorbell pages
};

extern "C" {

/// Opens a device, which is closed while the process ends.
void open_device();
/// Runs `call` while the process ends, after the destructors of the door.
void call_at_end(void (*call)());

/// Holds the next thread that makes the call until let_go(), or until the given thread sleeps (0:
/// no thread).
void hold_next(HeldCall call, int until_this_thread_sleeps);
bool is_held();
/// How many streams of files of the process's cgroup have been opened.
int opened_quota_streams();
/// Runs `function` in the next thread that makes the call, in the middle of it.
void run_in(HeldCall call, void (*function)());
void let_go();
/// For lives_slow.cc.
void hold_in_constructor();
}

// The oracle's harness: chapters of cases, each in its own process. Calls become lines.
//
// A line is `chapter.case/name = result`. It holds only what is the same in each run: no address,
// no random number, no time. If a case uses a name again, it gets `#2`, `#3` and so on.
#pragma once

#include <cerrno>
#include <string>
#include <type_traits>

namespace oracle {

/// Like printf, into a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// `EINVAL`, or the number if errno has no name for it.
std::string error_name(int error);

/// Prints one observation.
void line(const std::string& name, const std::string& result);
inline void number(const std::string& name, long long value) { line(name, std::to_string(value)); }

/// A call's return value: 0, a positive errno as its name, a negative one as `-EINVAL`, and for -1
/// the name of errno. If errno differs from the returned error, it is appended.
std::string outcome(int returned, int error);

/// Calls `f`, which returns a number, and prints the outcome as a line.
template <class F>
int did(const std::string& name, F f) {
  errno = 0;
  const int returned = f();
  line(name, outcome(returned, errno));
  return returned;
}

/// Calls `f`, which returns a pointer, and prints `ok` or the errno as a line.
template <class F>
auto made(const std::string& name, F f) -> std::invoke_result_t<F> {
  errno = 0;
  const auto pointer = f();
  const int error = errno;
  line(name, pointer ? "ok" : "none " + error_name(error));
  return pointer;
}

/// Calls `f`, which returns a count or an offset, and prints it as a line.
template <class F>
void moved(const std::string& name, F f) {
  errno = 0;
  const long long got = f();
  line(name, got < 0 ? "-1 " + error_name(errno) : std::to_string(got));
}

/// Ends the case with a line that says why the rest cannot run.
[[noreturn]] void stop(const std::string& why);
void need(bool there, const char* what);

/// Default time limit of a case, in seconds. A guest without KVM is slow.
inline constexpr int kSeconds = 60;

struct Register {
  Register(const char* chapter, const char* name, void (*run)(), int seconds = kSeconds);
};

/// Runs the cases of the chapters. `chapter.case` selects one case; no argument selects all.
int run_chapters(int count, char** chapters);

}  // namespace oracle

#define ORACLE_CASE(chapter, name, ...)                                                          \
  static void chapter##_##name();                                                                \
  static const ::oracle::Register register_##chapter##_##name(#chapter, #name, chapter##_##name, \
                                                              ##__VA_ARGS__);                    \
  static void chapter##_##name()

#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

namespace oracle {
namespace {

struct Case {
  std::string chapter;
  std::string name;
  void (*run)();
  int seconds;
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

// The running case's output, in its process.
int output = STDOUT_FILENO;
std::string prefix;

void write_all(int file, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto wrote = ::write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno != EINTR) ::_exit(3);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
}

/// Adds what the case writes to `lines`, until it closes its end or exits, or until the time `end`.
/// Returns false at that time.
bool carry(int file, pid_t process, std::chrono::steady_clock::time_point end, std::string& lines) {
  std::string buffer(65536, 0);
  for (bool has_ended = false;;) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    pollfd wait{file, POLLIN, 0};
    if (::poll(&wait, 1, has_ended ? 0 : 50) > 0) {
      const auto got = ::read(file, buffer.data(), buffer.size());
      if (got <= 0) return true;
      lines.append(buffer, 0, static_cast<std::size_t>(got));
      continue;
    }
    if (has_ended) return true;
    // It may have written its last lines since the poll.
    siginfo_t ended{};
    const auto id = static_cast<id_t>(process);
    has_ended = ::waitid(P_PID, id, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
  }
}

[[noreturn]] void be_case(const Case& one, int file) {
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  output = file;
  one.run();
  ::_exit(0);
}

void run_case(const Case& one) {
  const auto start = std::chrono::steady_clock::now();
  prefix = one.chapter + "." + one.name + "/";
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const auto process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    be_case(one, ends[1]);
  }
  ::setpgid(process, process);
  ::close(ends[1]);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(one.seconds);
  std::string lines;
  const bool in_time = carry(ends[0], process, end, lines);
  if (std::getenv("ORACLE_TIMES") != nullptr) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%7.2f s %s\n", took.count(), prefix.c_str());
  }
  if (!in_time) ::kill(-process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-process, SIGKILL);
  ::close(ends[0]);
  write_all(STDOUT_FILENO, lines);
  output = STDOUT_FILENO;
  if (!in_time)
    line("end", "out of time");
  else if (WIFSIGNALED(status))
    line("end", text("signal %s", ::sigabbrev_np(WTERMSIG(status))));
  else
    line("end", text("exit status %d", WEXITSTATUS(status)));
}

bool wanted(const Case& one, int count, char** names) {
  if (count == 0) return true;
  return std::any_of(names, names + count, [&](const std::string& name) {
    return name == one.chapter || name == one.chapter + "." + one.name;
  });
}

}  // namespace

std::string text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* made = nullptr;
  if (::vasprintf(&made, format, arguments) < 0) std::abort();
  va_end(arguments);
  std::string copy(made);
  std::free(made);
  return copy;
}

std::string error_name(int error) {
  if (error == 0) return "no errno";
  const char* const name = ::strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

void line(const std::string& name, const std::string& result) {
  static std::map<std::string, int> used;
  const int times = ++used[prefix + name];
  const auto repeated = times == 1 ? "" : "#" + std::to_string(times);
  write_all(output, prefix + name + repeated + " = " + result + "\n");
}

std::string outcome(int returned, int error) {
  if (returned == 0) return "0";
  if (returned == -1) return "-1 " + error_name(error);
  const int meant = returned < 0 ? -returned : returned;
  const auto name = (returned < 0 ? "-" : "") + error_name(meant);
  return error == 0 || error == meant ? name : name + ", errno " + error_name(error);
}

void stop(const std::string& why) {
  line("stops", why);
  ::_exit(0);
}

void need(bool there, const char* what) {
  if (!there) stop(text("%s: %s", what, error_name(errno).c_str()));
}

Register::Register(const char* chapter, const char* name, void (*run)(), int seconds) {
  auto& all = cases();
  const Case made{chapter, name, run, seconds};
  // Chapter by chapter, the cases of each in the order of its file.
  all.insert(std::upper_bound(
                 all.begin(), all.end(), made,
                 [](const Case& one, const Case& other) { return one.chapter < other.chapter; }),
             made);
}

int run_chapters(int count, char** chapters) {
  const auto& all = cases();
  int ran = 0;
  for (const auto& one : all) {
    if (!wanted(one, count, chapters)) continue;
    ++ran;
    run_case(one);
  }
  if (ran != 0) return 0;
  std::fprintf(stderr, "oracle: there is no such chapter or case; there are\n");
  for (const auto& one : all) {
    std::fprintf(stderr, "  %s.%s\n", one.chapter.c_str(), one.name.c_str());
  }
  return 2;
}

}  // namespace oracle

int main(int count, char** words) { return oracle::run_chapters(count - 1, words + 1); }

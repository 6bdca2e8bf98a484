#include "server/isolate/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace softhca::server {
namespace {

struct Actions {
  Actions() { ::posix_spawn_file_actions_init(&value); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&value); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  ::posix_spawn_file_actions_t value;
};

struct Attributes {
  Attributes() {
    ::posix_spawnattr_init(&value);
    ::sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&value, &none);
    ::posix_spawnattr_setsigdefault(&value, &all);
    ::posix_spawnattr_setflags(&value, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ::posix_spawnattr_t value;
};

}  // namespace

util::Result<pid_t> spawn_program(const std::string& path, const std::vector<std::string>& words,
                                  std::span<const int> inherited, int errors) {
  Actions actions;
  ::posix_spawn_file_actions_addopen(&actions.value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions.value, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions.value, errors, STDERR_FILENO);
  // A descriptor that is duplicated onto itself stays open.
  for (const int fd : inherited) ::posix_spawn_file_actions_adddup2(&actions.value, fd, fd);
  std::string name = "softhca";
  std::vector<std::string> copies = words;
  std::vector<char*> arguments = {name.data()};
  for (auto& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const Attributes attributes;
  pid_t pid = -1;
  const auto error = ::posix_spawn(&pid, path.c_str(), &actions.value, &attributes.value,
                                   arguments.data(), environ);
  if (error == 0) return pid;
  errno = error;
  return util::fail_errno(fmt::format("cannot start {}", path));
}

std::string describe_end(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  if (number == SIGSYS) return "a system call that it may not use (SIGSYS)";
  return fmt::format("signal {} ({})", number, ::strsignal(number));
}

}  // namespace softhca::server

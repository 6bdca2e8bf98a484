#include "cli/env_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "os/process_descriptors.h"
#include "os/unique_fd.h"
#include "run/device_files.h"
#include "run/keeper.h"
#include "run/number_options.h"
#include "run/program.h"
#include "run/rule_files.h"
#include "util/result.h"

namespace softhca::cli {
namespace {

using os::UniqueFd;

constexpr const char* kEnvFooter = R"--(
In a shell, for all programs that it starts from now on:

  eval "$(softhca env)"
  ibv_devinfo

As lines of NAME=VALUE (for docker run --env-file or GitHub's $GITHUB_ENV):

  softhca env --plain

All programs of the environment, and of all runs of the user, are on one network. The environment
keeps the network until its owner, the shell, ends.)--";

/// Quotes `text` so that every POSIX shell reads it as one word.
std::string in_quotes(std::string_view text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

/// Ends each variable: a path may have any other byte.
constexpr char kEnd = '\0';

/// Signals that end the fabric's holder before its owner ends. It cleans up then.
constexpr std::array kEndSignals = {SIGINT, SIGTERM, SIGQUIT};

/// Closes all inherited descriptors, which must not stay open as long as this process.
void let_go_of_all_but(std::vector<int> kept) {
  {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  }
  os::close_all_but(std::move(kept));
}

/// First byte of the holder's message to the printing process: variables follow, or an error.
constexpr char kHolds = '=', kFailed = '!';

void report(const UniqueFd& to, char how, const std::string& text) {
  const auto all = how + text;
  // If the reader has gone, the reader has reported that itself.
  (void)!::write(to.get(), all.data(), all.size());
}

/// Holds the fabric until its owner or its hub has gone. Reports to `begun` the variables of the
/// controls, which it keeps besides the fabric. Closes standard output, so that its reader sees the
/// end.
[[noreturn]] void hold(const EnvOptions& options, const std::string& fabric,
                       const std::vector<std::string>& rules, std::vector<std::string> ports,
                       const UniqueFd& owner, const UniqueFd& keeper, UniqueFd begun) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  ::prctl(PR_SET_NAME, "softhca-env");
  let_go_of_all_but({owner.get(), keeper.get(), begun.get()});
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kEndSignals) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC));
  run::Controls controls;
  const auto variables = controls.create(options.control, rules, fabric, std::move(ports));
  if (!variables) {
    report(begun, kFailed, variables.error().message);
    controls.close();
    ::_exit(1);
  }
  std::string all;
  for (const auto& one : *variables) all += one + kEnd;
  report(begun, kHolds, all);
  begun.reset();
  std::array<pollfd, 3> ends = {
      {{owner.get(), POLLIN, 0}, {keeper.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}}};
  while (::poll(ends.data(), ends.size(), -1) < 0 && errno == EINTR) {
  }
  controls.close();
  ::_exit(0);
}

/// Reads the variables that hold() reports.
util::Result<std::vector<std::string>> receive_variables(const UniqueFd& from) {
  std::string all;
  std::array<char, 256> part;
  for (;;) {
    const auto got = ::read(from.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    all.append(part.data(), static_cast<std::size_t>(got));
  }
  if (all.starts_with(kHolds)) {
    std::vector<std::string> variables;
    for (std::size_t at = 1; at < all.size();) {
      const auto end = all.find(kEnd, at);
      variables.push_back(all.substr(at, end - at));
      at = end == std::string::npos ? end : end + 1;
    }
    return variables;
  }
  return util::fail(all.starts_with(kFailed) ? all.substr(1)
                                             : "the process that holds the fabric has ended");
}

void print(const EnvOptions& options, const std::vector<std::string>& variables) {
  if (!options.plain) {
    // Removes variables of another environment of this shell.
    for (const auto& name : run::left_out_of(run::own_environment()))
      fmt::print("unset {};\n", name);
  }
  for (const auto& one : variables) {
    if (options.plain) {
      fmt::print("{}\n", one);
      continue;
    }
    const auto equals = one.find('=');
    fmt::print("export {}={};\n", one.substr(0, equals), in_quotes(one.substr(equals + 1)));
  }
}

/// In a container, a process started from outside has parent 0, which is invisible. The owner is
/// then the container's first process.
pid_t owner_of(const EnvOptions& options) {
  return std::max(1, options.owner.value_or(::getppid()));
}

util::Result<void> make_environment(const EnvOptions& options) {
  const auto library = run::find_library();
  if (!library) return tl::unexpected(library.error());
  const auto shown = options.seen.shown();
  if (!shown) return tl::unexpected(shown.error());
  const auto rules = run::read_rules(options.control.faults);
  if (!rules) return tl::unexpected(rules.error());
  const auto pid = owner_of(options);
  const UniqueFd owner(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!owner) {
    const auto* const why = errno == ENOSYS ? " (it needs Linux 5.3)" : "";
    return util::fail_errno(fmt::format("--owner {}{}", pid, why));
  }
  const auto fabric = options.fabric.own ? fmt::format("env-{}", pid) : options.fabric.name;
  const auto setup = options.fabric.setup();
  if (!setup) return tl::unexpected(setup.error());
  const auto member = run::join_fabric(
      fabric, *setup, [](const auto& directory) { return run::write_device_files(directory); });
  if (!member) return tl::unexpected(member.error());
  if (!member->notice.empty()) std::fprintf(stderr, "softhca: %s\n", member->notice.c_str());
  if (auto written = run::write_device_files(member->directory, *shown); !written) return written;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return util::fail_errno("pipe");
  const UniqueFd result(ends[0]);
  UniqueFd begun(ends[1]);
  const auto holder = ::fork();
  if (holder < 0) return util::fail_errno("fork");
  if (holder == 0) {
    hold(options, member->directory, *rules, shown->names(), owner, member->keeper,
         std::move(begun));
  }
  begun.reset();
  auto held = receive_variables(result);
  if (!held) return tl::unexpected(held.error());
  const auto all = run::environment_for(run::own_environment(), *library, member->directory);
  std::vector<std::string> variables(all.end() - run::kOwnVariables, all.end());
  for (auto& one : options.seen.variables(*shown)) variables.push_back(std::move(one));
  for (auto& one : *held) variables.push_back(std::move(one));
  print(options, variables);
  return {};
}

}  // namespace

CLI::App* add_env(CLI::App& app, EnvOptions& options) {
  auto* command = app.add_subcommand(
      "env",
      "Print the environment in which programs find an RDMA device: eval \"$(softhca env)\"");
  command->footer(kEnvFooter);
  run::add_fabric_options(*command, options.fabric);
  run::add_device_options(*command, options.seen);
  run::add_control_options(*command, options.control, "the environment");
  command
      ->add_option("--owner", options.owner,
                   "Keep the network until this process ends; 0: the first process of a container "
                   "(default: the caller of softhca)")
      ->type_name("PID")
      ->transform(run::whole_number(0, std::numeric_limits<pid_t>::max()));
  command->add_flag("--plain", options.plain,
                    "Print lines of NAME=VALUE instead of shell commands");
  return command;
}

int run_env(const EnvOptions& options) {
  if (const auto wrong = options.seen.check(); !wrong.empty()) {
    std::fprintf(stderr, "softhca: env: %s\n", wrong.c_str());
    return 1;
  }
  if (const auto made = make_environment(options); !made) {
    std::fprintf(stderr, "softhca: %s\n", made.error().message.c_str());
    return 1;
  }
  return 0;
}

}  // namespace softhca::cli

#include "cli/env_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/run/device_files.h"
#include "cli/run/keeper.h"
#include "cli/run/program.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {
namespace {

using vfio_user::UniqueFd;

constexpr const char* kFooter = R"--(
For a shell, and all that it starts from now on:

  eval "$(softhca env)"
  ibv_devinfo

For what wants lines of NAME=VALUE (docker run --env-file, GitHub's $GITHUB_ENV):

  softhca env --plain

All programs of the environment are on one switch, which ends with its owner: the shell.)--";

/// In words that every POSIX shell takes as one.
std::string in_quotes(std::string_view text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

/// Holds the fabric until its owner or its hub has gone. Who reads our output is to see its end.
[[noreturn]] void hold(const UniqueFd& owner, const UniqueFd& keeper) {
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  ::prctl(PR_SET_NAME, "softhca-env");
  {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null.get(), fd);
  }
  // Nothing else that was inherited stays open for as long as this.
  const int low = std::min(owner.get(), keeper.get());
  const int high = std::max(owner.get(), keeper.get());
  const auto close_between = [](int from, int to) {
    if (from <= to) ::close_range(static_cast<unsigned>(from), static_cast<unsigned>(to), 0);
  };
  close_between(STDERR_FILENO + 1, low - 1);
  close_between(low + 1, high - 1);
  ::close_range(static_cast<unsigned>(high) + 1, ~0u, 0);
  std::array<pollfd, 2> ends = {{{owner.get(), POLLIN, 0}, {keeper.get(), POLLIN, 0}}};
  while (::poll(ends.data(), ends.size(), -1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

void print(const EnvOptions& options, const std::string& library, const std::string& directory) {
  // What it puts in place stands last.
  const auto all = environment_for(own_environment(), library, directory);
  for (auto at = all.end() - 2; at != all.end(); ++at) {
    if (options.plain) {
      fmt::print("{}\n", *at);
      continue;
    }
    const auto equals = at->find('=');
    fmt::print("export {}={};\n", at->substr(0, equals), in_quotes(at->substr(equals + 1)));
  }
}

util::Result<void> make_environment(const EnvOptions& options) {
  const auto library = find_library();
  if (!library) return tl::unexpected(library.error());
  const auto pid = options.owner != 0 ? options.owner : ::getppid();
  const UniqueFd owner(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!owner) return util::fail_errno(fmt::format("--owner {}", pid));
  const auto fabric = options.fabric.empty() ? fmt::format("env-{}", pid) : options.fabric;
  const auto member = join_fabric(
      fabric, options.pcap, [](const auto& directory) { return write_device_files(directory); });
  if (!member) return tl::unexpected(member.error());
  const auto holder = ::fork();
  if (holder < 0) return util::fail_errno("fork");
  if (holder == 0) hold(owner, member->keeper);
  print(options, *library, member->directory);
  return {};
}

}  // namespace

CLI::App* add_env(CLI::App& app, EnvOptions& options) {
  auto* command = app.add_subcommand(
      "env",
      "Print the environment in which programs find a device of ours: eval \"$(softhca env)\"");
  command->footer(kFooter);
  command->add_option("--fabric", options.fabric,
                      "Share a switch with the runs and environments of this name (default: one "
                      "of the owner's)");
  command->add_option("--pcap", options.pcap,
                      "Capture everything that crosses the switch to this file (pcapng)");
  command
      ->add_option("--owner", options.owner,
                   "The process with whose end the switch may go (default: the one that calls)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--plain", options.plain, "NAME=VALUE lines, not words for a shell");
  return command;
}

int run_env(const EnvOptions& options) {
  if (const auto made = make_environment(options); !made) {
    std::fprintf(stderr, "softhca: %s\n", made.error().message.c_str());
    return 1;
  }
  return 0;
}

}  // namespace softhca::cli

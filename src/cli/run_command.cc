#include "cli/run_command.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "os/descriptor_limit.h"
#include "os/event_loop.h"
#include "os/process_descriptors.h"
#include "os/unique_fd.h"
#include "run/device_files.h"
#include "run/hub_host.h"
#include "run/keeper.h"
#include "run/program.h"
#include "run/reach.h"
#include "run/rule_files.h"
#include "run/run_directory.h"
#include "util/log.h"
#include "util/log_writer.h"

namespace softhca::cli {
namespace {

using os::UniqueFd;

constexpr const char* kRunFooter = R"(
The program, and all that it starts, finds an RDMA device through the libibverbs of this machine:

  softhca run ibv_devinfo

Programs of all runs of a user are on one network, so the two ends may be in two terminals:

  softhca run ib_write_bw
  softhca run ib_write_bw localhost

To see the state of its devices while it runs:

  softhca run --control /tmp/ctl -- ib_write_bw &
  softhca inspect /tmp/ctl

To see what it does when the network fails:

  softhca run --fault port=*,opcode=ack,nth=5,do=lose -- ./program

The exit status is the program's.)";

constexpr std::array kForwardedSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// A line about the hub, for the user.
void show(const std::string& notice) {
  if (!notice.empty()) std::fprintf(stderr, "softhca: %s\n", notice.c_str());
}

class Run {
 public:
  explicit Run(const RunOptions& options) : options_(options) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  util::Result<int> run();

 private:
  util::Result<void> set_up_own(const run::FabricSetup& setup);
  util::Result<void> set_up_shared(const run::FabricSetup& setup);
  util::Result<void> notify_program(const std::vector<std::string>& rules,
                                    std::vector<std::string>& environment);
  util::Result<void> block_signals();
  util::Result<void> watch();
  util::Result<int> wait();
  void handle_signals();
  void reap();

  const RunOptions& options_;
  run::ShownDevices shown_;
  sigset_t signals_before_{};
  // In order of creation; destroyed in the opposite order.
  std::optional<run::RunDirectory> own_;
  std::string directory_;
  std::unique_ptr<run::HubHost> host_;
  std::unique_ptr<os::EventLoop> without_hub_;  ///< the loop of a run that shares a fabric
  os::EventLoop* events_ = nullptr;
  run::Controls controls_;
  UniqueFd keeper_;
  UniqueFd signals_;
  pid_t pid_ = -1;
  std::optional<int> end_;  ///< the program's status, of wait()
};

Run::~Run() {
  for (const auto* fd : {&keeper_, &signals_}) {
    if (*fd && events_ != nullptr) events_->remove(fd->get());
  }
  if (keeper_) run::leave_fabric(std::move(keeper_));
}

util::Result<int> Run::run() {
  const auto library = run::find_library();
  if (!library) return tl::unexpected(library.error());
  auto shown = options_.seen.shown();
  if (!shown) return tl::unexpected(shown.error());
  shown_ = *std::move(shown);
  const auto setup = options_.fabric.setup();
  if (!setup) return tl::unexpected(setup.error());
  const auto rules = run::read_rules(options_.control.faults);
  if (!rules) return tl::unexpected(rules.error());
  auto good = options_.fabric.own ? set_up_own(*setup) : set_up_shared(*setup);
  if (!good) return tl::unexpected(good.error());
  if (const auto why = run::why_out_of_reach(run::find_program(options_.program.front()));
      !why.empty()) {
    std::fprintf(stderr, "softhca: %s finds no RDMA device: %s\n", options_.program.front().c_str(),
                 why.c_str());
  }
  auto environment = run::environment_for(run::own_environment(), *library, directory_);
  if (auto notified = notify_program(*rules, environment); !notified)
    return tl::unexpected(notified.error());
  const auto started = run::start_program(options_.program, environment, signals_before_);
  if (started.pid < 0) {
    std::fprintf(stderr, "softhca: %s\n", started.reason.c_str());
    return started.status;
  }
  pid_ = started.pid;
  if (good = watch(); !good) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    return tl::unexpected(good.error());
  }
  return wait();
}

util::Result<void> Run::set_up_own(const run::FabricSetup& setup) {
  // From here on a signal cannot leave the directory behind.
  if (auto good = block_signals(); !good) return good;
  auto directory = run::RunDirectory::create();
  if (!directory) return tl::unexpected(directory.error());
  own_.emplace(*std::move(directory));
  directory_ = own_->path();
  if (setup.trunk) {
    if (auto good = run::write_trunk_files(directory_, *setup.trunk); !good) return good;
  }
  if (auto good = run::write_device_files(directory_, shown_); !good) return good;
  auto host = run::HubHost::create(directory_, setup);
  if (!host) return tl::unexpected(host.error());
  host_ = *std::move(host);
  const auto notice = host_->await_others();
  if (!notice) return tl::unexpected(notice.error());
  show(*notice);
  events_ = &host_->events();
  return {};
}

util::Result<void> Run::set_up_shared(const run::FabricSetup& setup) {
  const auto& name = options_.fabric.name;
  auto member = run::join_fabric(
      name, setup, [](const auto& directory) { return run::write_device_files(directory); });
  if (!member) return tl::unexpected(member.error());
  directory_ = std::move(member->directory);
  show(member->notice);
  if (auto good = run::write_device_files(directory_, shown_); !good) return good;
  keeper_ = std::move(member->keeper);
  if (auto good = block_signals(); !good) return good;
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  without_hub_ = *std::move(events);
  events_ = without_hub_.get();
  return events_->add(keeper_.get(), EPOLLIN, [this, name](std::uint32_t) {
    events_->remove(keeper_.get());
    keeper_.reset();
    util::log(util::LogLevel::kError,
              "the hub of fabric {} has gone: the program's ports have no partners any more", name);
  });
}

/// Adds the library's other variables, besides the directory.
util::Result<void> Run::notify_program(const std::vector<std::string>& rules,
                                       std::vector<std::string>& environment) {
  for (auto& one : options_.seen.variables(shown_)) environment.push_back(std::move(one));
  auto variables = controls_.create(options_.control, rules, directory_, shown_.names());
  if (!variables) return tl::unexpected(variables.error());
  for (auto& one : *variables) environment.push_back(std::move(one));
  return {};
}

util::Result<void> Run::block_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kForwardedSignals) ::sigaddset(&set, number);
  ::sigaddset(&set, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);  // if it were ignored, it would not arrive
  if (::sigprocmask(SIG_BLOCK, &set, &signals_before_) != 0) return util::fail_errno("sigprocmask");
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return util::fail_errno("signalfd");
  return {};
}

util::Result<void> Run::watch() {
  os::raise_descriptor_limit();  // for this process only: the program has started
  ::signal(SIGPIPE, SIG_IGN);
  return events_->add(signals_.get(), EPOLLIN, [this](std::uint32_t) { handle_signals(); });
}

/// Forwards signals, except the terminal's (Ctrl-C), which the program gets directly.
void Run::handle_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else if (info.ssi_code != SI_KERNEL && !end_) {
      ::kill(pid_, static_cast<int>(info.ssi_signo));
    }
  }
}

/// Reaps the program and, as process 1 of a container, all orphans.
void Run::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == pid_) end_ = status;
  }
}

util::Result<int> Run::wait() {
  while (!end_) events_->run_once(util::kNever);
  return run::exit_status(*end_);
}

/// CLI11 does not know the PROGRAM words.
class RunHelp final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "\nUsage: softhca run [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n";
  }
};

}  // namespace

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  auto* command = app.add_subcommand("run", "Run a program with an RDMA device in software");
  command->formatter(std::make_shared<RunHelp>());
  command->footer(kRunFooter);
  run::add_fabric_options(*command, options.fabric);
  run::add_device_options(*command, options.seen);
  run::add_control_options(*command, options.control, "the program");
  return command;
}

int take_program(const CLI::App& run, int argc, const char* const* argv, RunOptions& options) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool separates = word == "--";
    if (separates || !word.starts_with('-')) {
      options.program.assign(argv + i + (separates ? 1 : 0), argv + argc);
      return i;
    }
    const auto* const option = run.get_option_no_throw(std::string(word));
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return argc;
}

int run_run(const RunOptions& options) {
  if (options.program.empty()) {
    std::fputs("softhca: run: which program? softhca run [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n",
               stderr);
    return 1;
  }
  if (const auto wrong = options.seen.check(); !wrong.empty()) {
    std::fprintf(stderr, "softhca: run: %s\n", wrong.c_str());
    return 1;
  }
  // With a log thread, a private run's hub does not block on standard error.
  util::LogWriter log(STDERR_FILENO);
  util::set_log_sink([&log](auto level, auto text) { log.write(level, text); });
  util::Result<int> status = 0;
  {
    Run run(options);
    status = run.run();
  }
  util::set_log_sink(nullptr);
  if (status) return *status;
  std::fprintf(stderr, "softhca: %s\n", status.error().message.c_str());
  return 1;
}

}  // namespace softhca::cli

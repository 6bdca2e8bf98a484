#include "server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "driver/vfio_user_host.h"

namespace softhca::bench {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

std::string socket_in(const std::filesystem::path& directory, std::size_t device) {
  return directory / fmt::format("device{}", device);
}

}  // namespace

ServerProcess::ServerProcess(const std::string& program, const std::vector<std::string>& devices,
                             const std::vector<std::string>& options) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  directory_ = name;
  std::vector<std::string> words = {program, "serve"};
  for (std::size_t i = 0; i != devices.size(); ++i) {
    words.insert(words.end(), {"--device", devices[i], "--socket", socket_in(directory_, i)});
  }
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int failed =
      ::posix_spawn(&pid_, program.c_str(), &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (failed == 0) return;
  std::filesystem::remove_all(directory_);
  throw std::runtime_error(fmt::format("{}: {}", program, std::strerror(failed)));
}

ServerProcess::~ServerProcess() {
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(directory_);
}

std::string ServerProcess::socket(std::size_t device) const {
  const auto path = socket_in(directory_, device);
  for (const auto end = util::monotonic_now() + kPatience; util::monotonic_now() < end;) {
    if (driver::VfioUserHost::connect(path, {.timeout = kPatience})) return path;
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) break;
    std::this_thread::sleep_for(5ms);
  }
  throw std::runtime_error("the server does not come up");
}

}  // namespace softhca::bench

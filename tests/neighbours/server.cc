#include "server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "cli/control_socket.h"

namespace softhca::neighbours {
namespace {

using namespace std::chrono_literals;

std::size_t entries_of(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory),
                                                std::filesystem::directory_iterator()));
}

/// Until `done`, at most so long.
template <class Done>
bool wait_for(std::chrono::seconds limit, Done done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

}  // namespace

Server::Server(const std::vector<std::string>& devices, const std::vector<std::string>& options) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  directory_ = name;
  std::vector<std::string> words = {SOFTHCA_PROGRAM, "serve", "--measure-turns", "--control",
                                    control()};
  for (std::size_t i = 0; i != devices.size(); ++i) {
    words.insert(words.end(), {"--device", devices[i], "--socket", socket(i)});
  }
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto log = (directory_ / "log").string();
  pid_ = ::fork();
  if (pid_ == 0) {
    const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (!wait_for(20s, [this] { return cli::ask_control(control(), "inspect").has_value(); })) {
    throw std::runtime_error("the server does not come up: " + log);
  }
}

Server::~Server() {
  ::kill(pid_, SIGTERM);
  int status = 0;
  const bool ended = wait_for(10s, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  EXPECT_TRUE(ended) << "SIGTERM is not obeyed";
  if (!ended) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
  if (::testing::Test::HasFailure()) {
    std::ifstream log(directory_ / "log");
    std::string line;
    for (int lines = 0; lines < 50 && std::getline(log, line); ++lines) {
      std::fprintf(stderr, "server: %s\n", line.c_str());
    }
  }
  std::filesystem::remove_all(directory_);
}

std::string Server::socket(std::size_t device) const {
  return (directory_ / ("device" + std::to_string(device))).string();
}

bool Server::alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

nlohmann::json Server::inspect() const {
  const auto answer = cli::ask_control(control(), "inspect --json");
  if (!answer) throw std::runtime_error(answer.error().message);
  return nlohmann::json::parse(answer->substr(answer->find('\n') + 1));
}

std::uint64_t Server::longest_turn_ns() const {
  const auto answer = cli::ask_control(control(), "inspect --json loop");
  if (!answer) throw std::runtime_error(answer.error().message);
  return nlohmann::json::parse(answer->substr(answer->find('\n') + 1))["longest_processor_ns"];
}

std::size_t Server::descriptors() const {
  return entries_of("/proc/" + std::to_string(pid_) + "/fd");
}

std::size_t Server::maps() const {
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  std::string line;
  std::size_t count = 0;
  while (std::getline(maps, line)) ++count;
  return count;
}

std::uint64_t Server::resident_bytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  std::uint64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return (resident - shared) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t Server::log_size() const { return std::filesystem::file_size(directory_ / "log"); }

}  // namespace softhca::neighbours

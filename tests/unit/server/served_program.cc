#include "served_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "control/control_socket.h"
#include "eventually.h"

namespace softhca::server {
namespace {

std::size_t entries_of(const std::filesystem::path& directory) {
  std::error_code gone;
  const std::filesystem::directory_iterator begin(directory, gone);
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

std::ifstream proc(pid_t pid, const char* name) {
  return std::ifstream("/proc/" + std::to_string(pid) + "/" + name);
}

/// The largest value of `figure` in the tree.
std::uint64_t largest(const nlohmann::json& tree, std::string_view figure) {
  std::uint64_t found = 0;
  for (const auto& [name, value] : tree.items()) {
    if (value.is_object()) {
      found = std::max(found, largest(value, figure));
    } else if (name == figure) {
      found = std::max(found, value.get<std::uint64_t>());
    }
  }
  return found;
}

/// The sum of all values of `figure` in the tree.
std::uint64_t total(const nlohmann::json& tree, std::string_view figure) {
  std::uint64_t sum = 0;
  for (const auto& [name, value] : tree.items()) {
    if (value.is_object()) {
      sum += total(value, figure);
    } else if (name == figure) {
      sum += value.get<std::uint64_t>();
    }
  }
  return sum;
}

}  // namespace

ServedProgram::ServedProgram(const std::vector<std::string>& devices,
                             const std::vector<std::string>& options, int log)
    : output_(log) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  directory_ = name;
  words_ = {SOFTHCA_PROGRAM, "serve", "--control", control()};
  for (std::size_t i = 0; i != devices.size(); ++i) {
    words_.insert(words_.end(), {"--device=" + devices[i], "--socket=" + socket(i)});
  }
  words_.insert(words_.end(), options.begin(), options.end());
  start();
}

void ServedProgram::start() {
  std::vector<char*> arguments;
  for (auto& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto file = (directory_ / "log").string();
  pid_ = ::fork();
  if (pid_ == 0) {
    const int out =
        output_ >= 0 ? output_ : ::open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  EXPECT_TRUE(eventually([this] {
    return !alive() || control::ask_control(control(), "fault list").has_value();
  })) << "the server does not come up";
}

ServedProgram::~ServedProgram() {
  stop();
  if (::testing::Test::HasFailure()) {
    std::ifstream log(directory_ / "log");
    std::string line;
    for (int lines = 0; lines < 50 && std::getline(log, line); ++lines) {
      std::fprintf(stderr, "server: %s\n", line.c_str());
    }
  }
  std::filesystem::remove_all(directory_);
}

void ServedProgram::stop() {
  if (!alive()) return;
  ::kill(pid_, SIGTERM);
  const bool ended = eventually([this] { return !alive(); });
  EXPECT_TRUE(ended) << "SIGTERM is not obeyed";
  if (!ended) {
    ::kill(pid_, SIGKILL);
    (void)wait_end();
  }
  EXPECT_TRUE(WIFEXITED(status_) && WEXITSTATUS(status_) == 0) << "wait status " << status_;
}

bool ServedProgram::alive() {
  if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ > 0;
}

void ServedProgram::kill_and_restart() {
  ::kill(pid_, SIGKILL);
  (void)wait_end();
  start();
}

int ServedProgram::wait_end() {
  EXPECT_TRUE(eventually([this] { return !alive(); })) << "it goes on";
  return status_;
}

std::string ServedProgram::socket(std::size_t device) const {
  return (directory_ / ("device" + std::to_string(device))).string();
}

std::string ServedProgram::log() const {
  std::stringstream text;
  text << std::ifstream(directory_ / "log").rdbuf();
  return text.str();
}

std::uint64_t ServedProgram::log_size() const {
  return std::filesystem::file_size(directory_ / "log");
}

std::string ServedProgram::ask(const std::string& request) const {
  const auto answer = control::ask_control(control(), request);
  return answer ? *answer : "no answer: " + answer.error().message;
}

nlohmann::json ServedProgram::inspect(const std::string& what) const {
  const auto answer = ask("inspect --json " + what);
  return answer.starts_with("ok\n") ? nlohmann::json::parse(answer.substr(3)) : nlohmann::json();
}

bool ServedProgram::wait_for_start(const std::string& process, unsigned starts) const {
  return eventually([&] {
    const auto now = processes();
    return now.contains(process) && now[process]["starts"] >= starts &&
           now[process]["serves"] == true;
  });
}

std::vector<pid_t> ServedProgram::pids() const {
  std::vector<pid_t> all = {pid_};
  const auto there = processes();
  for (const auto& [name, process] : there.items()) {
    if (process["pid"] != 0) all.push_back(process["pid"]);
  }
  return all;
}

std::size_t ServedProgram::descriptors() const {
  std::size_t count = 0;
  for (const auto pid : pids()) count += entries_of("/proc/" + std::to_string(pid) + "/fd");
  return count;
}

std::size_t ServedProgram::maps() const {
  std::size_t count = 0;
  for (const auto pid : pids()) {
    auto maps = proc(pid, "maps");
    for (std::string line; std::getline(maps, line);) ++count;
  }
  return count;
}

std::uint64_t ServedProgram::resident_bytes() const {
  std::uint64_t pages = 0;
  for (const auto pid : pids()) {
    std::uint64_t size = 0, resident = 0, shared = 0;
    proc(pid, "statm") >> size >> resident >> shared;
    pages += resident - shared;
  }
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

ServedProgram::Turns ServedProgram::turns() const {
  const auto loop = inspect("loop");
  return {.all = total(loop, "turns"),
          .above_2_ms = total(loop, "turns_above_2_ms"),
          .longest_work = largest(loop, "longest_work"),
          .longest_ns = largest(loop, "longest_processor_ns")};
}

}  // namespace softhca::server

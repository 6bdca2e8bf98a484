// `softhca serve` in a process of its own, for tests: with its log, its control socket, and what
// /proc tells of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace softhca::cli {

class ServedProgram {
 public:
  /// One socket for each device, `socket(i)`; `options`: further words of the command line; `log`:
  /// where it writes to, or -1 for a file. Waits until it serves or has ended.
  explicit ServedProgram(const std::vector<std::string>& devices,
                         const std::vector<std::string>& options = {}, int log = -1);
  ~ServedProgram();
  ServedProgram(const ServedProgram&) = delete;
  ServedProgram& operator=(const ServedProgram&) = delete;

  /// Ends it by SIGTERM, and expects that it obeys within seconds, with exit status 0.
  void stop();
  /// Ends it by SIGKILL, and starts it anew with the same words.
  void kill_and_restart();
  /// It has ended by itself, or did not come up: the status of wait(2).
  int wait_end();

  const std::filesystem::path& directory() const { return directory_; }
  std::string socket(std::size_t device) const;
  std::string control() const { return (directory_ / "control").string(); }
  pid_t pid() const { return pid_; }
  bool alive();
  /// What it and its processes have logged so far.
  std::string log() const;
  std::uint64_t log_size() const;

  /// The whole answer of the control socket, its first line included.
  std::string ask(const std::string& request) const;
  /// What `softhca inspect --json` tells about `what`, or all. Null if that is an error.
  nlohmann::json inspect(const std::string& what = {}) const;

  // Of a server with --isolate.
  nlohmann::json processes() const { return inspect("processes"); }
  pid_t pid_of(const std::string& process) const { return processes()[process]["pid"]; }
  /// Waits until `process` has been started so many times and serves.
  bool wait_for_start(const std::string& process, unsigned starts) const;

  // Of it and its processes together.
  std::size_t descriptors() const;
  std::size_t maps() const;
  std::uint64_t resident_bytes() const;
  /// Of the loops of all so far. With --measure-turns.
  struct Turns {
    std::uint64_t all = 0;
    std::uint64_t above_2_ms = 0;    ///< on the clocks of these threads
    std::uint64_t longest_work = 0;  ///< counted, see util::WorkBudget
    std::uint64_t longest_ns = 0;
  };
  Turns turns() const;

 private:
  void start();
  std::vector<pid_t> pids() const;

  std::filesystem::path directory_;
  const int output_;                ///< -1: the file "log"
  std::vector<std::string> words_;  ///< of the command line
  pid_t pid_ = -1;                  ///< 0: it has ended
  int status_ = 0;
};

}  // namespace softhca::cli

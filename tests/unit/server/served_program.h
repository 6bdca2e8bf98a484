// `softhca serve` in its own process, for tests: its log, its control socket and its figures in
// /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace softhca::server {

class ServedProgram {
 public:
  /// One socket per device, `socket(i)`. `options` holds further command-line arguments. `log` is
  /// the descriptor to log to, or -1 for a file. Waits until the server serves or has ended.
  explicit ServedProgram(const std::vector<std::string>& devices,
                         const std::vector<std::string>& options = {}, int log = -1);
  ~ServedProgram();
  ServedProgram(const ServedProgram&) = delete;
  ServedProgram& operator=(const ServedProgram&) = delete;

  /// Sends SIGTERM, and expects exit status 0 within seconds.
  void stop();
  /// Kills the server with SIGKILL, then restarts it with the same arguments.
  void kill_and_restart();
  /// Waits for a server that ends by itself or failed to start. Returns the status of wait(2).
  int wait_end();

  const std::filesystem::path& directory() const { return directory_; }
  std::string socket(std::size_t device) const;
  std::string control() const { return (directory_ / "control").string(); }
  pid_t pid() const { return pid_; }
  bool alive();
  /// Log output of the server and its processes so far.
  std::string log() const;
  std::uint64_t log_size() const;

  /// The whole answer of the control socket, with its first line.
  std::string ask(const std::string& request) const;
  /// Output of `softhca inspect --json` for `what`, or for everything. Null on an error.
  nlohmann::json inspect(const std::string& what = {}) const;

  // Requires --isolate.
  nlohmann::json processes() const { return inspect("processes"); }
  pid_t pid_of(const std::string& process) const { return processes()[process]["pid"]; }
  /// Waits until `process` has started `starts` times and serves.
  bool wait_for_start(const std::string& process, unsigned starts) const;

  // Totals over the server and its processes.
  std::size_t descriptors() const;
  std::size_t maps() const;
  std::uint64_t resident_bytes() const;
  /// Loop turns of all processes so far. Requires --measure-turns.
  struct Turns {
    std::uint64_t all = 0;
    std::uint64_t above_2_ms = 0;    ///< CPU time of these threads
    std::uint64_t longest_work = 0;  ///< counted work, see util::WorkBudget
    std::uint64_t longest_ns = 0;
  };
  Turns turns() const;

 private:
  void start();
  std::vector<pid_t> pids() const;

  std::filesystem::path directory_;
  const int output_;                ///< -1 for the file "log"
  std::vector<std::string> words_;  ///< command-line arguments
  pid_t pid_ = -1;                  ///< 0 once the server has ended
  int status_ = 0;
};

}  // namespace softhca::server

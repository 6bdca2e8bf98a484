// `softhca serve` in its own process, as guests use it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace softhca::bench {

class ServerProcess {
 public:
  /// Runs `program serve` with a socket for each device. Throws if it cannot be started.
  ServerProcess(const std::string& program, const std::vector<std::string>& devices,
                const std::vector<std::string>& options);
  /// Sends SIGTERM.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// Waits until the server listens there. Throws if that takes seconds.
  std::string socket(std::size_t device) const;

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
};

}  // namespace softhca::bench

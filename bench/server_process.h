// `softhca serve` in a process of its own: what guests meet.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace softhca::bench {

class ServerProcess {
 public:
  /// `program serve` with a socket for each device. Throws if it cannot be started.
  ServerProcess(const std::string& program, const std::vector<std::string>& devices,
                const std::vector<std::string>& options);
  /// SIGTERM.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// Waits until somebody listens there. Throws if that takes seconds.
  std::string socket(std::size_t device) const;

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
};

}  // namespace softhca::bench

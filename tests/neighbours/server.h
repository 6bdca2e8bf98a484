// `softhca serve` in a process of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace softhca::neighbours {

/// A sanitizer's run-time maps memory of its own, and all takes many times longer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
/// What a turn of the server's loop may take of its own processor time. The aim is 2 ms.
inline constexpr std::uint64_t kTurnMaxNs = 20'000'000;

class Server {
 public:
  /// One socket for each device, `socket(i)`. Throws if the server does not come up.
  explicit Server(const std::vector<std::string>& devices,
                  const std::vector<std::string>& options = {});
  /// Ends it by SIGTERM, and expects that it obeys within seconds.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string socket(std::size_t device) const;
  std::string control() const { return (directory_ / "control").string(); }
  pid_t pid() const { return pid_; }
  bool alive() const;

  /// What `softhca inspect --json` tells.
  nlohmann::json inspect() const;
  /// The longest turn so far, on the clock of the loop's thread.
  std::uint64_t longest_turn_ns() const;

  std::size_t descriptors() const;
  std::size_t maps() const;
  std::uint64_t resident_bytes() const;
  /// Bytes that it has logged.
  std::uint64_t log_size() const;

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
};

}  // namespace softhca::neighbours

// Log lines about one device, for users: errors of its guest and of its peers, and state changes.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "util/clock.h"
#include "util/log.h"

namespace softhca::util {

/// Each line begins with the device's name. Guests and the wire can cause most lines, so their rate
/// is limited; the next line then says how many were omitted. The device passes this object down to
/// its parts.
class Notes {
 public:
  static constexpr unsigned kBurst = 20;
  static constexpr Duration kInterval = std::chrono::seconds(1);

  explicit Notes(std::string name) : name_(std::move(name)), limit_(kBurst, kInterval) {}
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  std::string_view name() const { return name_; }
  /// Sets the time of the device's current turn.
  void set_time(Time now) { now_ = now; }

  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    note(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    note(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  /// Not limited: a user who enables debug lines wants them all.
  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (!log_enabled(LogLevel::kDebug)) return;
    log_text(LogLevel::kDebug,
             fmt::format("{}: {}", name_, fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  template <class... Args>
  void note(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    std::uint64_t held_back = 0;
    if (!log_enabled(level) || !limit_.allow(now_, &held_back)) return;
    log_text(level,
             fmt::format("{}: {}{}", name_, fmt::format(format, std::forward<Args>(args)...),
                         held_back == 0 ? std::string()
                                        : fmt::format(" ({} lines were left out)", held_back)));
  }

  std::string name_;
  RateLimiter limit_;
  Time now_{};
};

}  // namespace softhca::util

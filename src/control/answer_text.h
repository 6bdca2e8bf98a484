// How an answer of a control socket begins.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace softhca::control {

inline constexpr std::string_view kOk = "ok\n";
inline constexpr std::string_view kError = "error: ";

inline std::string error_answer(std::string_view message) {
  return fmt::format("{}{}\n", kError, message);
}

}  // namespace softhca::control

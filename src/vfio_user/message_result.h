// The result of a message: done, or refused with an errno for the client and a reason for the log.
#pragma once

#include <cerrno>

namespace softhca::vfio_user {

struct [[nodiscard]] MessageResult {
  int error = 0;                 ///< errno; 0: done
  const char* reason = nullptr;  ///< the check that refused it

  explicit operator bool() const { return error == 0; }
};

inline constexpr MessageResult kDone{};

constexpr MessageResult refuse(int error, const char* reason) {
  return {.error = error, .reason = reason};
}

}  // namespace softhca::vfio_user

// Errors of the environment (a socket, a file, a missing feature of the machine). They are values
// that say what was tried, and never exceptions on a normal path.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace softhca::util {

struct Error {
  std::string message;  ///< what was tried, what went wrong, and, if known, what to do
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(std::string message) {
  return tl::unexpected<Error>(Error{std::move(message)});
}

/// `fail(what + ": " + strerror(errno))`.
tl::unexpected<Error> fail_errno(std::string what);

}  // namespace softhca::util

// Stops exceptions before they enter C code, or leave a thread of the library.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "util/log.h"

namespace softhca::door {

/// -errno of the current exception. Logs all but a lack of memory.
inline int errno_of_exception() {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return -ENOMEM;
    } catch (const std::system_error& error) {
      util::log(util::LogLevel::kError, "{}", error.what());
      return error.code().value() > 0 ? -error.code().value() : -EIO;
    } catch (const std::exception& error) {
      util::log(util::LogLevel::kError, "{}", error.what());
      return -EIO;
    }
  } catch (const std::bad_alloc&) {
    return -ENOMEM;  // for the log line
  }
}

/// The result of `work`, or -errno.
template <class Work>
int without_exceptions(Work&& work) {
  try {
    return work();
  } catch (const std::exception&) {
    return errno_of_exception();
  }
}

}  // namespace softhca::door

#include "util/result.h"

#include <cerrno>
#include <system_error>

namespace softhca::util {

tl::unexpected<Error> fail_errno(std::string what) {
  const int code = errno;
  return fail(std::move(what) + ": " + std::generic_category().message(code));
}

}  // namespace softhca::util

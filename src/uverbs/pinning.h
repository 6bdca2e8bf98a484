// Memory that a program registers: hardware has its pages pinned, and finds out then what is not
// there.
#pragma once

#include <cstdint>

#include "uverbs/request.h"

namespace softhca::uverbs {

/// Makes sure that all pages of [address, address + size) are there: EFAULT if one is not.
Errno pin(std::uint64_t address, std::uint64_t size, bool is_written);

}  // namespace softhca::uverbs

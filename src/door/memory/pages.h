// The size of a page of the processor.
#pragma once

#include <cstdint>

namespace softhca::door {

inline constexpr std::uint64_t kPage = 4096;

}  // namespace softhca::door

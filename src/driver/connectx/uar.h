// The location of doorbell pages (UAR): page n of BAR0 is UAR n (PRM 7.2, Table 13).
#pragma once

#include <cstdint>

#include "spec/connectx/init_segment.h"

namespace softhca::driver::connectx {

inline constexpr unsigned kUarBar = 0;

/// Offset of a doorbell page in the BAR.
constexpr std::uint64_t uar_offset(std::uint32_t uar) {
  return std::uint64_t{uar} * softhca::spec::connectx::uar_page::kSize;
}

}  // namespace softhca::driver::connectx

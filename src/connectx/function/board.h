// The board's name, as drivers and sysfs show it.
#pragma once

#include <string_view>

namespace softhca::connectx {

/// PSID in QUERY_ADAPTER. It is none of the vendor's, so that no flashing tool mistakes this device
/// for its board.
inline constexpr std::string_view kBoardId = "SHC_0000000001";

}  // namespace softhca::connectx

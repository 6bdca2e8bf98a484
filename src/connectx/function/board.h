// The board's name, as drivers and sysfs show it.
#pragma once

#include <string_view>

namespace softhca::connectx {

/// The PSID in QUERY_ADAPTER. It is not one of the vendor's, so that no flashing tool mistakes this
/// device for a board of the vendor.
inline constexpr std::string_view kBoardId = "SHC_0000000001";

}  // namespace softhca::connectx

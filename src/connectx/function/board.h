// The name of the board, which drivers and sysfs show.
#pragma once

#include <string_view>

namespace softhca::connectx {

/// PSID of QUERY_ADAPTER. Not one of the vendor's, so that no flashing tool takes this for its
/// board.
inline constexpr std::string_view kBoardId = "SHC_0000000001";

}  // namespace softhca::connectx

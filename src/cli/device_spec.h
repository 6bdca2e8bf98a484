// The argument of --device: a model's name, and what distinguishes one card from another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "connectx/device.h"
#include "sdxi/options.h"
#include "util/result.h"

namespace softhca::cli {

/// What --device takes, for help texts.
inline constexpr std::string_view kDeviceHelp =
    "connectx[,mac=XX:XX:XX:XX:XX:XX][,guid=HEX][,vectors=N][,name=TEXT] or "
    "sdxi[,contexts=N][,name=TEXT]";

using DeviceSpec = std::variant<connectx::DeviceOptions, sdxi::DeviceOptions>;

/// A device as `text` describes it; what it leaves out is made from `index`, the device's place on
/// the command line: name <model><index>, MAC 02:5f:ca:00:00:<index>, a node GUID made from the
/// MAC.
util::Result<DeviceSpec> parse_device(std::string_view text, unsigned index);

}  // namespace softhca::cli

// The argument of --device: a model's name, and the properties of one card.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "connectx/device.h"
#include "jingzhao/options.h"
#include "sdxi/options.h"
#include "util/result.h"

namespace softhca::server {

/// The syntax of --device, for help texts.
inline constexpr std::string_view kDeviceHelp =
    "connectx[,mac=XX:XX:XX:XX:XX:XX][,guid=HEX][,vectors=N][,doorbells=mapped|trapped]"
    "[,name=TEXT], rsnic[,profile=driver|document] with the same keys but doorbells, "
    "jingzhao[,link=ethernet|infiniband][,guid=HEX][,icm_cache=N][,profile=document|driver]"
    "[,name=TEXT], or "
    "sdxi[,KEY=VALUE]... or sdxi-vf,pf=NAME[,KEY=VALUE]..., a virtual function of an sdxi before "
    "it that has vfs (softhca serve --help has the keys); each may have ,guest=TEXT (see "
    "--isolate)";

/// A virtual function of the SDXI function named `pf`.
struct VirtualFunctionSpec {
  sdxi::DeviceOptions options;
  std::string pf;
};

using DeviceSpec = std::variant<connectx::DeviceOptions, sdxi::DeviceOptions, VirtualFunctionSpec,
                                jingzhao::DeviceOptions>;

/// Whether the function has a port on a switch; the others are data movers.
inline bool is_nic(const DeviceSpec& spec) {
  return std::holds_alternative<connectx::DeviceOptions>(spec) ||
         std::holds_alternative<jingzhao::DeviceOptions>(spec);
}

/// The name of the specified function.
const std::string& name_of(const DeviceSpec& spec);

/// The guest= of a device's text; empty if there is none.
std::string guest_of(std::string_view text);

/// Checks the devices of a command line against each other: distinct names and addresses, and for
/// each VF an earlier PF with room for it.
util::Result<void> check_together(const std::vector<DeviceSpec>& specs);

/// Parses a device. Omitted properties are derived from `index`, the device's position on the
/// command line: the name is the model and <index> (sdxi<index> for a VF), the MAC
/// 02:5f:ca:00:00:<index>, and the node GUID is derived from the MAC. `infiniband`: the link of a
/// device that supports both.
util::Result<DeviceSpec> parse_device(std::string_view text, unsigned index,
                                      bool infiniband = false);

}  // namespace softhca::server

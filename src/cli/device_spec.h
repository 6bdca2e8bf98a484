// The argument of --device: a model's name, and what distinguishes one card from another.
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

namespace softhca::cli {

/// What --device takes, for help texts.
inline constexpr std::string_view kDeviceHelp =
    "connectx[,mac=XX:XX:XX:XX:XX:XX][,guid=HEX][,vectors=N][,doorbells=mapped|trapped]"
    "[,name=TEXT], rsnic[,profile=driver|document] with the same keys but doorbells, "
    "jingzhao[,link=ethernet|infiniband][,guid=HEX][,icm_cache=N][,profile=document|driver]"
    "[,name=TEXT], or "
    "sdxi[,KEY=VALUE]... or sdxi-vf,pf=NAME[,KEY=VALUE]..., a virtual function of an sdxi before "
    "it that has vfs (softhca serve --help has the keys); each may have ,guest=TEXT (see "
    "--isolate)";

/// A virtual function of the SDXI function that is called `pf`.
struct VirtualFunctionSpec {
  sdxi::DeviceOptions options;
  std::string pf;
};

using DeviceSpec = std::variant<connectx::DeviceOptions, sdxi::DeviceOptions, VirtualFunctionSpec,
                                jingzhao::DeviceOptions>;

/// The function has a port on a switch; the others are data movers.
inline bool is_nic(const DeviceSpec& spec) {
  return std::holds_alternative<connectx::DeviceOptions>(spec) ||
         std::holds_alternative<jingzhao::DeviceOptions>(spec);
}

/// The name of the function that a specification makes.
const std::string& name_of(const DeviceSpec& spec);

/// What a device's text says of the guest that it is for; empty if nothing.
std::string guest_of(std::string_view text);

/// Checks what the devices of a command line are to each other: names and addresses that differ, a
/// PF with room before each VF.
util::Result<void> check_together(const std::vector<DeviceSpec>& specs);

/// A device as `text` describes it; what it leaves out is made from `index`, the device's place on
/// the command line: the model and <index> as its name (sdxi<index> for a VF), MAC
/// 02:5f:ca:00:00:<index>, a node GUID made from the MAC. `infiniband`: the link of a device that
/// can have either.
util::Result<DeviceSpec> parse_device(std::string_view text, unsigned index,
                                      bool infiniband = false);

}  // namespace softhca::cli

#include "cli/run/device_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <system_error>

#include "door/tree/tree.h"

namespace softhca::cli {

util::Result<void> write_device_files(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directory(directory + "/root", error);
  if (error) return util::fail(fmt::format("'{}/root': {}", directory, error.message()));
  // Each process is a host of its own: its addresses are told by its device, and not here.
  door::DeviceIdentity device;
  device.node_guid = door::kNodeGuid;
  device.mac = {2, 0, 0, 0, 0, 0};
  device.gids.resize(4);
  device.interface = "lo";
  return door::write_tree(directory + "/root", std::span(&device, 1));
}

}  // namespace softhca::cli

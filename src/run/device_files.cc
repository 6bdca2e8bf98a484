#include "run/device_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "connectx/base/model.h"
#include "connectx/function/board.h"
#include "door/tree/tree.h"

namespace softhca::run {

util::Result<void> write_device_files(const std::string& directory, const ShownDevices& devices) {
  std::error_code error;
  const auto word = devices.word();
  const auto root = directory + (word.empty() ? "/root" : "/root-" + word);
  if (std::filesystem::exists(root, error)) return {};
  const connectx::Model card;
  const auto salt = door::read_guid_salt(directory);
  std::vector<door::DeviceIdentity> all(devices.count);
  for (auto number = devices.host.first_free(); auto& device : all) {
    // Each process is a host of its own: its device provides the addresses, not these files.
    device.name = fmt::format("mlx5_{}", number);
    device.number = number;
    device.node_guid = door::node_guid_of(number, salt);
    device.device_id = card.device_id;
    device.subsystem_id = card.subsystem_id;
    device.firmware =
        fmt::format("{}.{}.{}", card.firmware_major, card.firmware_minor, card.firmware_subminor);
    device.board_id = connectx::kBoardId;
    device.mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(number)};
    device.gids.resize(4);
    device.interface = "lo";
    ++number;
  }
  // Another run may be writing the same files.
  const auto own = fmt::format("{}.{}", root, ::getpid());
  std::filesystem::create_directory(own, error);
  if (error) return util::fail(fmt::format("'{}': {}", own, error.message()));
  if (auto written = door::write_tree(own, all); !written) return written;
  if (auto linked = devices.host.link_into(own); !linked) return linked;
  std::filesystem::rename(own, root, error);
  if (!error) return {};
  const bool there = std::filesystem::exists(root);
  std::error_code ignored;
  std::filesystem::remove_all(own, ignored);
  if (there) return {};
  return util::fail(fmt::format("'{}': {}", root, error.message()));
}

}  // namespace softhca::run

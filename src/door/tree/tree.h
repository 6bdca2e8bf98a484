// The files that programs read about an RDMA device, as real files in a directory: sysfs and /dev
// as far as RDMA is concerned (host-door 2.5). `softhca run` writes it, the door maps paths to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace softhca::door {

/// Device numbers of uverbs<n>: kUverbsMajor:kUverbsMinor + n (IB_UVERBS_MAJOR and
/// IB_UVERBS_BASE_MINOR of the kernel's drivers/infiniband/core/uverbs_main.c).
inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsMinor = 192;
/// So many have a fixed number there.
inline constexpr unsigned kUverbsCount = 32;

/// Device number of rdma_cm, of the misc devices.
inline constexpr unsigned kRdmaCmMajor = 10;
inline constexpr unsigned kRdmaCmMinor = 58;
/// What stands for it where device files are told by the number of uverbs<n>.
inline constexpr unsigned kRdmaCmFile = 1000;
/// The GUID of mlx5_<number>: sysfs and the device itself say the same.
constexpr std::uint64_t node_guid_of(unsigned number) { return 0x020000fffe000000 + number; }

/// What `softhca run` says to programs of their devices, unless it is one that begins at 0:
/// "<count>", or "<count>+<first>-<mark>" if the host's are shown as well (host_devices.h). Below
/// the directory of the run stands a tree for each of these words.
inline constexpr const char* kDevicesVariable = "SOFTHCA_DEVICES";
/// Our devices: mlx5_<first> of uverbs<first>, and so on.
struct DeviceNumbers {
  unsigned count = 1;
  unsigned first = 0;
};
/// None if it is no such word, or names devices beyond kUverbsCount. Allocates nothing.
std::optional<DeviceNumbers> parse_device_numbers(std::string_view word);

/// Entries of a GID table.
inline constexpr std::size_t kGids = 256;

/// What one device shows.
struct DeviceIdentity {
  std::string name = "mlx5_0";
  unsigned number = 0;  ///< of uverbs<number>, and the slot of the PCI address; below kUverbsCount
  std::uint64_t node_guid = 0;  ///< in the order in which it is read: the first byte is the highest
  // Of the card that all doors show (connectx::Model).
  std::uint16_t device_id = 0;
  std::uint16_t subsystem_id = 0;
  std::string firmware;
  std::string board_id;
  std::array<std::uint8_t, 6> mac{};
  /// Those in use, by index, at most 256; zeros: each process has another. As in the kernel's
  /// table, even ones are of RoCE v1 and odd ones of RoCE v2.
  std::vector<std::array<std::uint8_t, 16>> gids;
  std::string interface;  ///< the network interface of the GIDs; none if empty
};

/// The function's address, as "5348:00:00.0".
std::string pci_address(const DeviceIdentity& device);

/// Writes sys/ and dev/ below `root`, which is made if it is not there and must have neither; all
/// that libibverbs, libmlx5, UCX, ibstat, perftest, hwloc and pyverbs read. Fails if a file cannot
/// be written, and if names or numbers are not fit for it.
util::Result<void> write_tree(const std::filesystem::path& root,
                              std::span<const DeviceIdentity> devices);

}  // namespace softhca::door

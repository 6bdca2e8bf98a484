// The files that programs read about an RDMA device, as real files in a directory: the RDMA part of
// sysfs and /dev (kernel interface 2.5). `softhca run` writes them; the door maps paths to them.
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
/// This many devices have a fixed number there.
inline constexpr unsigned kUverbsCount = 32;

/// Device number of rdma_cm, a misc device.
inline constexpr unsigned kRdmaCmMajor = 10;
inline constexpr unsigned kRdmaCmMinor = 58;
/// Represents rdma_cm where device files are identified by the n of uverbs<n>.
inline constexpr unsigned kRdmaCmFile = 1000;
/// The GUID of mlx5_<number>, in sysfs and in the device. `salt`: see read_guid_salt().
constexpr std::uint64_t node_guid_of(unsigned number, std::uint16_t salt = 0) {
  return 0x020000fffe000000 + salt * std::uint64_t{0x100} + number;
}
/// Makes the GUIDs of a run's devices differ from those of other machines. A network that is joined
/// with others has a file with a random number; all other networks have 0.
std::uint16_t read_guid_salt(const std::string& directory);
util::Result<void> write_guid_salt(const std::string& directory, std::uint16_t salt);

/// The variable by which `softhca run` passes the number of devices to the library in a program:
/// "<count>", or "<count>+<first>-<mark>" if the host's are shown too (host_devices.h). It is not
/// set for one device of number 0. The run's directory has a tree for each of these words.
inline constexpr const char* kDevicesVariable = "SOFTHCA_DEVICES";
/// The devices of a run: mlx5_<first> with uverbs<first>, and so on.
struct DeviceNumbers {
  unsigned count = 1;
  unsigned first = 0;
};
/// Nothing if the word is malformed, or names devices beyond kUverbsCount. Allocates nothing.
std::optional<DeviceNumbers> parse_device_numbers(std::string_view word);

/// Entries of a GID table.
inline constexpr std::size_t kGids = 256;

/// The identity that one device shows.
struct DeviceIdentity {
  std::string name = "mlx5_0";
  unsigned number = 0;  ///< of uverbs<number>, and the slot of the PCI address; below kUverbsCount
  std::uint64_t node_guid = 0;  ///< as a number; its first byte is the most significant
  // Identity of the card model that all doors show (connectx::Model).
  std::uint16_t device_id = 0;
  std::uint16_t subsystem_id = 0;
  std::string firmware;
  std::string board_id;
  std::array<std::uint8_t, 6> mac{};
  /// GIDs in use, by index, at most 256; zeros: depends on the process. As in the kernel's table,
  /// even indexes are RoCE v1 and odd ones RoCE v2.
  std::vector<std::array<std::uint8_t, 16>> gids;
  std::string interface;  ///< network interface of the GIDs; empty: none
};

/// The function's address, as "5348:00:00.0".
std::string pci_address(const DeviceIdentity& device);

/// Writes sys/ and dev/ below `root`, which is created if necessary and must contain neither. It
/// writes all that libibverbs, libmlx5, UCX, ibstat, perftest, hwloc and pyverbs read. Fails if a
/// file cannot be written, or if names or numbers are unsuitable.
util::Result<void> write_tree(const std::filesystem::path& root,
                              std::span<const DeviceIdentity> devices);

}  // namespace softhca::door

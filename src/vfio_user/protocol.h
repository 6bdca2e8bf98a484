// The vfio-user protocol on the wire: QEMU's docs/interop/vfio-user.rst ("the protocol" in the
// comments of this folder), which takes many structures from <linux/vfio.h>. Layout only.
//
// "All data is in the endianness of the host system": client and server share a host, so these are
// plain structures, copied to and from the message with memcpy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace softhca::vfio_user::protocol {

inline constexpr std::uint16_t kMajor = 0;
inline constexpr std::uint16_t kMinor = 1;

enum class Command : std::uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kDeviceGetInfo = 4,
  kDeviceGetRegionInfo = 5,
  kDeviceGetRegionIoFds = 6,
  kDeviceGetIrqInfo = 7,
  kDeviceSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,   ///< server to client
  kDmaWrite = 12,  ///< server to client
  kDeviceReset = 13,
  kDirtyPages = 14,  ///< from earlier revisions
  kRegionWriteMulti = 15,
  kDeviceFeature = 16,
  kMigDataRead = 17,
  kMigDataWrite = 18,
};

/// The command's name for logs.
const char* command_name(std::uint16_t command);

/// Precedes every message, in both directions.
struct Header {
  std::uint16_t message_id;
  std::uint16_t command;
  std::uint32_t message_size;  ///< bytes, this header included
  std::uint32_t flags;
  std::uint32_t error;  ///< errno, in replies with kFlagError
};
static_assert(sizeof(Header) == 16);

inline constexpr std::uint32_t kTypeMask = 0xf;
inline constexpr std::uint32_t kTypeCommand = 0;
inline constexpr std::uint32_t kTypeReply = 1;
inline constexpr std::uint32_t kFlagNoReply = 1u << 4;
inline constexpr std::uint32_t kFlagError = 1u << 5;

/// VERSION, in both directions. JSON text with its NUL follows, or nothing.
struct Version {
  std::uint16_t major;
  std::uint16_t minor;
};
static_assert(sizeof(Version) == 4);

// Defaults of capabilities that the other side did not mention.
inline constexpr std::uint32_t kDefaultMaxMsgFds = 1;
inline constexpr std::uint64_t kDefaultMaxDataXferSize = 1u << 20;

struct DmaMap {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint64_t offset;  ///< in the file
  std::uint64_t address;
  std::uint64_t size;
};
static_assert(sizeof(DmaMap) == 32);
inline constexpr std::uint32_t kDmaMapReadable = 1u << 0;
inline constexpr std::uint32_t kDmaMapWriteable = 1u << 1;

struct DmaUnmap {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint64_t address;
  std::uint64_t size;
};
static_assert(sizeof(DmaUnmap) == 24);
/// Unmaps everything. Not in the protocol's text, but in <linux/vfio.h>, and QEMU sends it.
inline constexpr std::uint32_t kDmaUnmapAll = 1u << 1;

struct DeviceInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t num_regions;
  std::uint32_t num_irqs;
};
static_assert(sizeof(DeviceInfo) == 16);
inline constexpr std::uint32_t kDeviceFlagReset = 1u << 0;
inline constexpr std::uint32_t kDeviceFlagPci = 1u << 1;

/// Regions of a PCI device (<linux/vfio.h>): the six BARs, then these.
inline constexpr std::uint32_t kBarRegions = 6;
inline constexpr std::uint32_t kRomRegion = 6;
inline constexpr std::uint32_t kConfigRegion = 7;
inline constexpr std::uint32_t kVgaRegion = 8;
inline constexpr std::uint32_t kRegionCount = 9;

struct RegionInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t cap_offset;  ///< from the start of this structure
  std::uint64_t size;
  std::uint64_t offset;
};
static_assert(sizeof(RegionInfo) == 32);
inline constexpr std::uint32_t kRegionFlagRead = 1u << 0;
inline constexpr std::uint32_t kRegionFlagWrite = 1u << 1;
inline constexpr std::uint32_t kRegionFlagMmap = 1u << 2;
inline constexpr std::uint32_t kRegionFlagCaps = 1u << 3;

/// The sparse mmap capability; `nr_areas` of SparseArea follow.
struct SparseMmapCapability {
  std::uint16_t id;
  std::uint16_t version;
  std::uint32_t next;
  std::uint32_t nr_areas;
  std::uint32_t reserved;
};
static_assert(sizeof(SparseMmapCapability) == 16);
inline constexpr std::uint16_t kSparseMmapId = 1;
inline constexpr std::uint16_t kSparseMmapVersion = 1;
struct SparseArea {
  std::uint64_t offset;
  std::uint64_t size;
};
static_assert(sizeof(SparseArea) == 16);

/// GET_REGION_IO_FDS, in both directions.
struct RegionIoFds {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t count;
};
static_assert(sizeof(RegionIoFds) == 16);

/// Interrupt types of a PCI device (<linux/vfio.h>): INTx, MSI, MSI-X, error, request.
inline constexpr std::uint32_t kMsiIrqIndex = 1;
inline constexpr std::uint32_t kMsixIrqIndex = 2;
inline constexpr std::uint32_t kIrqIndexCount = 5;

struct IrqInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t count;
};
static_assert(sizeof(IrqInfo) == 16);
inline constexpr std::uint32_t kIrqInfoEventfd = 1u << 0;
inline constexpr std::uint32_t kIrqInfoMaskable = 1u << 1;

/// SET_IRQS; with kIrqSetDataBool `count` bytes follow.
struct IrqSet {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t start;
  std::uint32_t count;
};
static_assert(sizeof(IrqSet) == 20);
inline constexpr std::uint32_t kIrqSetDataNone = 1u << 0;
inline constexpr std::uint32_t kIrqSetDataBool = 1u << 1;
inline constexpr std::uint32_t kIrqSetDataEventfd = 1u << 2;
inline constexpr std::uint32_t kIrqSetActionMask = 1u << 3;
inline constexpr std::uint32_t kIrqSetActionUnmask = 1u << 4;
inline constexpr std::uint32_t kIrqSetActionTrigger = 1u << 5;

/// REGION_READ and REGION_WRITE, in both directions; the data follows in a write and in a read's
/// reply.
struct RegionAccess {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count;
};
static_assert(sizeof(RegionAccess) == 16);

/// One write of REGION_WRITE_MULTI, whose payload begins with their number (64 bits).
struct RegionWriteOne {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count;  ///< bytes, up to 8
  std::byte data[8];
};
static_assert(sizeof(RegionWriteOne) == 24);

/// DMA_READ and DMA_WRITE, in both directions; the data follows in a write and in a read's reply.
struct DmaAccess {
  std::uint64_t address;
  std::uint64_t count;
};
static_assert(sizeof(DmaAccess) == 16);

/// Copies the structure at byte `at` of `bytes`. @pre `bytes` contains it
template <class T>
T load(std::span<const std::byte> bytes, std::size_t at = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace softhca::vfio_user::protocol

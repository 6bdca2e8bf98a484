// The capability flags that verbs and NETLINK_RDMA sockets report.
#pragma once

#include <cstdint>

namespace softhca::uverbs {

/// ib_device_cap_flags. All mlx5 devices have port change events, the system image GUID and RNR NAK
/// generation. This one adds memory windows of type 1 and 2B, XRC, fast registration, checksums of
/// raw packets, and flows.
inline constexpr std::uint32_t kDeviceFlags = 1u << 5 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 17 |
                                              1u << 24 | 1u << 20 | 1u << 21 | 1u << 26 | 1u << 29;
}  // namespace softhca::uverbs

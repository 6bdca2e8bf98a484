// What a device says that it can, to verbs and at sockets of NETLINK_RDMA.
#pragma once

#include <cstdint>

namespace softhca::uverbs {

/// ib_device_cap_flags that all mlx5 devices have: port changes, system image GUID, RNR NAK
/// generation; and those of this one: memory windows of type 1 and 2B, XRC, fast registration,
/// checksums of raw packets, flows.
inline constexpr std::uint32_t kDeviceFlags = 1u << 5 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 17 |
                                              1u << 24 | 1u << 20 | 1u << 21 | 1u << 26 | 1u << 29;
}  // namespace softhca::uverbs

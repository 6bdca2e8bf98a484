// Numbers of the kernel's interface (ib_verbs.h, the mlx5 driver) that several files need.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>

#include <cstdint>

namespace softhca::uverbs {

// Attributes that carry a command of the write() interface.
inline constexpr std::uint16_t kCoreIn = UVERBS_ATTR_CORE_IN;
inline constexpr std::uint16_t kCoreOut = UVERBS_ATTR_CORE_OUT;

/// The only port.
inline constexpr std::uint8_t kPort1 = 1;
inline constexpr std::uint32_t kCompletionVectors = 1;
/// IB_MTU_4096 of ib_mtu.
inline constexpr std::uint32_t kMtu4096 = 5;
/// mlx5_to_sw_pkey_sz(0).
inline constexpr std::uint32_t kPkeysMin = 128;
/// Bytes of a block of a send queue.
inline constexpr std::uint64_t kSendBlock = 64;
/// Log2 of the bytes of a receive queue's entry.
inline constexpr unsigned kLogStrideMin = 4, kLogStrideMax = 9;

// Flags of raw packet QPs and of RSS QPs.
inline constexpr std::uint32_t kHearItself = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC;
inline constexpr std::uint32_t kHearOwnMulticast = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;

// ib_access_flags.
inline constexpr std::uint32_t kLocalWrite = 1;
inline constexpr std::uint32_t kRemoteWrite = 2;
inline constexpr std::uint32_t kRemoteRead = 4;
inline constexpr std::uint32_t kRemoteAtomic = 8;
inline constexpr std::uint32_t kBindWindow = 16;
inline constexpr std::uint32_t kOnDemand = 64;
inline constexpr std::uint32_t kHugePages = 128;
inline constexpr std::uint32_t kFlushAccess = 0x300;
inline constexpr std::uint32_t kRelaxedOrdering = 1u << 20;

/// ib_mr_rereg_flags.
enum : std::uint32_t { kReregTranslation = 1, kReregDomain = 2, kReregAccess = 4 };

}  // namespace softhca::uverbs

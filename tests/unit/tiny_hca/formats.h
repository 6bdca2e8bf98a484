// The document of the tiny HCA. All structures are big-endian.
#pragma once

#include <cstdint>

#include "util/field.h"

namespace softhca::tiny {

template <class Owner, std::size_t Offset, unsigned Hi, unsigned Lo>
using Bits = util::Field<Owner, util::ByteOrder::kBig, Offset, Hi, Lo>;

enum class Opcode : std::uint8_t { kSend = 1, kWrite = 2, kRead = 3 };

/// 1: a work queue entry. A receive WQE has only next, length, lkey and address. Software counts
/// posted entries in the queue pair's doorbell record: sends in dword 0, receives in dword 1.
struct wqe {
  static constexpr std::size_t kSize = 32;
  static constexpr unsigned kLogSize = 5;
  static constexpr Bits<wqe, 0x00, 31, 24> opcode{};
  static constexpr Bits<wqe, 0x00, 16, 16> signaled{};
  static constexpr Bits<wqe, 0x00, 15, 0> next{};  ///< index of the entry to execute next
  static constexpr Bits<wqe, 0x04, 31, 0> length{};
  static constexpr Bits<wqe, 0x08, 31, 0> lkey{};
  static constexpr Bits<wqe, 0x0c, 31, 0> rkey{};
  static constexpr Bits<wqe, 0x10, 63, 0> address{};
  static constexpr Bits<wqe, 0x18, 63, 0> remote_address{};
};

/// 2: a completion queue entry. Software owns it if `lap` equals the parity of its lap, 0 in the
/// first.
struct cqe {
  static constexpr std::size_t kSize = 16;
  static constexpr Bits<cqe, 0x00, 31, 24> status{};  ///< rdma::WorkStatus
  static constexpr Bits<cqe, 0x00, 23, 0> qpn{};
  static constexpr Bits<cqe, 0x04, 31, 24> reason{};   ///< error reason
  static constexpr Bits<cqe, 0x04, 16, 16> receive{};  ///< 0: of a send
  static constexpr Bits<cqe, 0x04, 15, 0> place{};     ///< index of the WQE
  static constexpr Bits<cqe, 0x08, 31, 0> byte_count{};
  static constexpr Bits<cqe, 0x0c, 1, 1> valid{};  ///< 1 in each entry that the device has written
  static constexpr Bits<cqe, 0x0c, 0, 0> lap{};
};

/// 3: error reasons of a WQE, in cqe.reason.
inline constexpr std::uint8_t kUnknownOpcode = 1;

/// 4: a memory key: the index in bits 9:0, the variant in the bits above.
inline constexpr unsigned kKeyIndexBits = 10;

}  // namespace softhca::tiny

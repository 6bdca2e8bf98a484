// Why a process gets no RoCEv2 socket from the hub, and what its user can do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/gid.h"

namespace softhca::hub {

struct RoceRefusal {
  enum class Kind : std::uint8_t {
    kNone,
    kPortTaken,         ///< by a process of user `holder`
    kPortTakenByRxe,    ///< by the kernel: rdma_rxe
    kNoSuchAddress,     ///< no address of the machine
    kUnfit,             ///< not the address of one machine
    kTooManyProcesses,  ///< no block is free
    kTooManyAddresses,  ///< of all processes of the hub
    kSpoiled,           ///< the last process of the block has locked its socket's filter
    kFailed             ///< a system call, for reason `error`
  };

  Kind kind = Kind::kNone;
  std::int32_t error = 0;    ///< errno
  std::uint32_t holder = 0;  ///< user ID

  explicit operator bool() const { return kind != Kind::kNone; }
  /// `address`: the one that was asked for.
  std::string explain(const wire::Gid& address) const;

  friend bool operator==(const RoceRefusal&, const RoceRefusal&) = default;
};

/// The user that has UDP port `port` at an address for which bind() failed with EADDRINUSE.
RoceRefusal find_holder(const wire::Gid& address, std::uint16_t port);
/// The same from the text of /proc/net/udp or udp6. `has_rxe`: the module rdma_rxe is loaded.
RoceRefusal find_holder(std::string_view table, const wire::Gid& address, std::uint16_t port,
                        bool has_rxe);

}  // namespace softhca::hub

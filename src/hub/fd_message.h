// Fixed-size messages with descriptors, on the socket between the hub and a process.
#pragma once

#include <cstddef>
#include <span>

#include "os/unique_fd.h"

namespace softhca::hub {

/// Maximum descriptors of one message.
constexpr std::size_t kFdsMax = 4;

/// True if all bytes were sent. Never blocks.
bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds);

enum class Received : unsigned char {
  kMessage,    ///< a complete message
  kNothing,    ///< nothing was received; errno gives the reason
  kEnd,        ///< the peer has closed its end
  kOther,      ///< a message of another size
  kFdsMissing  ///< a message that lacks some of its descriptors
};

/// Fills in both. Every descriptor is above standard input, output and error: a program may have
/// closed these, and may reopen them. `flags` of recvmsg(): MSG_DONTWAIT, MSG_WAITALL.
Received receive_message(int socket, std::span<std::byte> bytes, std::span<os::UniqueFd> fds,
                         int flags);

}  // namespace softhca::hub

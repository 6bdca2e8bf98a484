// Messages of fixed size with descriptors, on the socket between a hub and a process.
#pragma once

#include <cstddef>
#include <span>

#include "vfio_user/unique_fd.h"

namespace softhca::hub {

/// The most descriptors of one message.
constexpr std::size_t kFdsMax = 4;

/// True if all went. Does not wait.
bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds);

enum class Received : unsigned char {
  kMessage,    ///< all of it
  kNothing,    ///< none is there, and it was not waited for; errno says what happened
  kEnd,        ///< the other end has closed
  kOther,      ///< of another size
  kFdsMissing  ///< the message, without all of its descriptors
};

/// Fills in both. The descriptors are above those of standard input, output and errors, which a
/// program may have closed and mean to open anew. `flags` of recvmsg(): MSG_DONTWAIT, MSG_WAITALL.
Received receive_message(int socket, std::span<std::byte> bytes, std::span<vfio_user::UniqueFd> fds,
                         int flags);

}  // namespace softhca::hub

// Numbers of queues: a range of those that a driver can name.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// [first, first + count). Devices that share a network address have different ones, so that the
/// number of a packet's QP identifies the device. The default is all numbers.
struct QueueNumbers {
  std::uint32_t first = 0;
  std::uint32_t count = UINT32_MAX;

  friend bool operator==(const QueueNumbers&, const QueueNumbers&) = default;
};

}  // namespace softhca::connectx

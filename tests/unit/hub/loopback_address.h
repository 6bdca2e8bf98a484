// Addresses of the loopback interface for tests that run at the same time.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "wire/gid.h"

namespace softhca::hub {

/// An address of 127.0.0.0/8 that other test processes do not use.
inline wire::Gid loopback_address(unsigned host) {
  const auto pid = static_cast<unsigned>(::getpid());
  return wire::Gid::from_ipv4(127, static_cast<std::uint8_t>(1 + pid / 256 % 250),
                              static_cast<std::uint8_t>(pid), static_cast<std::uint8_t>(host));
}

}  // namespace softhca::hub

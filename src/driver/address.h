// The addresses of a RoCE port.
#pragma once

#include <array>
#include <cstddef>

#include "wire/gid.h"
#include "wire/mac_address.h"

namespace softhca::driver {

/// An Ethernet address.
using Mac = wire::MacAddress;
/// A port's address on a RoCEv2 network.
using Gid = wire::Gid;

/// An address vector (IBTA 11.2.2.1) in the form that requests of one driver carry. Only the driver
/// that made it reads it.
struct AddressForm {
  std::array<std::byte, 64> bytes{};
};

}  // namespace softhca::driver

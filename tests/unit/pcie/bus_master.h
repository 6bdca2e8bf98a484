// Sets Bus Master Enable of a function under test, as a host writes it (PCIe 5.0 7.5.1.1.3). A test
// without a driver begins with it, because otherwise the device reaches no memory.
#pragma once

#include <array>
#include <cstdint>

#include "pcie/function.h"
#include "util/endian.h"

namespace softhca::pcie {

inline void set_bus_master(Function& function, bool enabled) {
  constexpr std::uint32_t kCommand = 0x04;
  constexpr std::uint16_t kBusMasterEnable = 1u << 2;
  std::array<std::byte, 2> command;
  function.read_config(kCommand, command);
  const auto others = util::load_le16(command.data()) & ~unsigned{kBusMasterEnable};
  util::store_le16(command.data(),
                   static_cast<std::uint16_t>(enabled ? others | kBusMasterEnable : others));
  function.write_config(kCommand, command);
}

}  // namespace softhca::pcie

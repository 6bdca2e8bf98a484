// Path MTUs as encoded in contexts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// The path MTU in bytes. An invalid code counts as the nearest valid one.
constexpr std::uint32_t path_mtu_of(std::uint32_t code) {
  using Mtu = spec::connectx::qp_mtu;
  constexpr std::uint32_t kShortest = 256;
  const auto mtu = std::clamp(static_cast<Mtu>(code), Mtu::BYTES_256, Mtu::BYTES_4K);
  return kShortest << (static_cast<unsigned>(mtu) - static_cast<unsigned>(Mtu::BYTES_256));
}

}  // namespace softhca::connectx

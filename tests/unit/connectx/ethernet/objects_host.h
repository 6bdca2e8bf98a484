// Commands of Ethernet objects, and their status.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/ethernet/ethernet_host.h"

namespace softhca::connectx::test {

class EthernetObjects : public ::testing::Test {
 protected:
  EthernetObjects() : cqn(host.create_cq()) {}

  template <class Out, class In, class FillIn>
  Status status(Opcode opcode, FillIn fill, std::span<const std::byte> tail = {}) {
    return host.call<Out, In>(opcode, [&](util::MutableView<In> in) { fill(in); }, tail).status();
  }

  EthernetHost host;
  std::uint32_t cqn;
};

}  // namespace softhca::connectx::test

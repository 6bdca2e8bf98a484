// Descriptors for tests of contexts.
#pragma once

#include <cstdint>
#include <optional>

#include "sdxi/active_machine.h"

namespace softhca::sdxi::test {

class ContextTest : public ActiveMachineTest {
 protected:
  Descriptor start_rs(std::uint32_t first, std::uint32_t last) {
    return start(first, last, std::nullopt, spec::admin_subtype::DSC_CXT_START_RS);
  }
};

}  // namespace softhca::sdxi::test

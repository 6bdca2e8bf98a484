// A machine whose function is in GSV_ACTIVE.
#pragma once

#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {

class ActiveMachineTest : public ::testing::Test {
 protected:
  ActiveMachineTest() { m_.activate(); }
  /// Recovers after a failed administrative operation (SDXI 3.5).
  void restart() {
    m_.request(spec::fn_gsr::GSRV_STOP_SF);
    m_.run();
    m_.set_state(m_.context(0), spec::cxtv::CXTV_RUN);
    m_.store64(m_.context(0).write_index, m_.read_index(m_.context(0)));
    m_.request(spec::fn_gsr::GSRV_ACTIVE);
    m_.run();
    ASSERT_EQ(m_.gsv(), spec::fn_gsv::GSV_ACTIVE);
  }

  FunctionGroup group_;
  Machine m_{group_};
};

}  // namespace softhca::sdxi::test

// Shared by the ConnectX fuzzers: a host that checks the device in each turn.
#pragma once

#include <gtest/gtest.h>

#include "connectx/fake_host.h"
#include "device_turn.h"
#include "script.h"
#include "util/log.h"

namespace softhca::fuzz {

/// Makes failures of the test host end the program, and silences the device's log.
inline void prepare_connectx() {
  static const bool prepared = [] {
    GTEST_FLAG_SET(break_on_failure, true);
    util::set_log_sink([](util::LogLevel, std::string_view) {});
    return true;
  }();
  (void)prepared;
}

}  // namespace softhca::fuzz

// Faults that a test injects into a device, as a user does.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "connectx/device.h"
#include "connectx/fault_names.h"
#include "hca/faults.h"

namespace softhca::connectx {

/// The rules of one device, as a server keeps them.
struct FaultRules {
  explicit FaultRules(Device& of) : device(of) { device.faults().set_rules(faults); }
  hca::FaultId add(std::string_view text) {
    auto rule = hca::parse_fault(text, fault_names());
    EXPECT_TRUE(rule) << rule.error().message;
    const auto id = faults.add(*std::move(rule));
    device.faults().follow_rules();
    return id;
  }
  void remove(hca::FaultId id) {
    EXPECT_TRUE(faults.remove(id));
    device.faults().follow_rules();
  }
  const hca::Faults::Entry& at(hca::FaultId id) const { return *faults.find(id); }

  Device& device;
  hca::Faults faults;
};

}  // namespace softhca::connectx

// Message 0: the function's own interrupt, for its error log, its mailboxes and its halt
// (SDXI 3.4, 9.1, 9.4).
#pragma once

#include <string_view>

#include "pcie/interrupts.h"
#include "sdxi/faults.h"

namespace softhca::sdxi {

class OwnInterrupt {
 public:
  /// `function` is its name; all arguments outlive this.
  OwnInterrupt(std::string_view function, pcie::Interrupts& interrupts, Faults& faults)
      : function_(function), interrupts_(interrupts), faults_(faults) {}

  void raise() {
    if (faults_.armed() && faults_.lose_message(function_)) return;
    interrupts_.raise(0);
  }

 private:
  std::string_view function_;
  pcie::Interrupts& interrupts_;
  Faults& faults_;
};

}  // namespace softhca::sdxi

// The state machine of the function (SDXI 4.1): MMIO_CTL0.fn_gsr in, MMIO_STS0.fn_gsv out.
#pragma once

#include <optional>
#include <string>

#include "sdxi/contexts.h"
#include "sdxi/error_log.h"
#include "sdxi/gate.h"
#include "sdxi/own_interrupt.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

class FunctionState final : public FunctionHalt {
 public:
  FunctionState(Registers& registers, ErrorLog& log, Contexts& contexts,
                OwnInterrupt& own_interrupt, Gate& gate)
      : registers_(registers),
        log_(log),
        contexts_(contexts),
        own_interrupt_(own_interrupt),
        gate_(gate) {}

  /// Software wrote fn_gsr. Every write has its effect, also one of the value already there.
  void request(spec::fn_gsr value);

  /// Does the work that is due; returns when to be called next.
  util::Time run(util::Time now, util::WorkBudget& work);

  void halt(const Refusal& refusal, std::optional<ContextNumber> context) override;

 private:
  void enter(spec::fn_gsv state);
  void initialize();

  Registers& registers_;
  ErrorLog& log_;
  Contexts& contexts_;
  OwnInterrupt& own_interrupt_;
  Gate& gate_;
};

}  // namespace softhca::sdxi

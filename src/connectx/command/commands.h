// The handlers of all commands, one for each line of command_list.inc. A handler has its command's
// name in lower case. Its checks follow the order of the document.
#pragma once

#include "connectx/command/command.h"

namespace softhca::connectx {

#define DONE(opcode, handler, section, when) \
  CommandResult handler(DriverState& driver, const Command& command);
#define PARTLY(opcode, handler, section, when, missing) \
  CommandResult handler(DriverState& driver, const Command& command);
#define ABSENT(opcode, section, why)
#define REFUSED(opcode, section, why)
#include "connectx/command/command_list.inc"

}  // namespace softhca::connectx

// CREATE_PSV, DESTROY_PSV (mlx5 driver interface 7.10).

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/memory/memory_keys.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

CommandResult create_psv(DriverState& driver, const Command& command) {
  return driver.memory_keys().psvs().create(command);
}

CommandResult destroy_psv(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_psv_in;
  return driver.memory_keys().psvs().destroy(Psvn(command.input<In>().get(In::psvn)));
}

}  // namespace softhca::connectx

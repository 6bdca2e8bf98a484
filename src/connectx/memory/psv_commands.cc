// CREATE_PSV, DESTROY_PSV (mlx5 driver interface 7.10).

#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/memory/memory_keys.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

CommandResult create_psv(Device& device, const Command& command) {
  return device.memory_keys().psvs().create(command);
}

CommandResult destroy_psv(Device& device, const Command& command) {
  using In = spec::connectx::destroy_psv_in;
  return device.memory_keys().psvs().destroy(Psvn(command.input<In>().get(In::psvn)));
}

}  // namespace softhca::connectx

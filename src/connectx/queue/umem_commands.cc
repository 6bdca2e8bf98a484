// CREATE_UMEM, DESTROY_UMEM (mlx5 driver interface 7.11).

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/objects.h"
#include "connectx/queue/user_memory.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

CommandResult create_umem(DriverState& driver, const Command& command) {
  using Out = spec::connectx::create_umem_out;
  const auto id = driver.user_memories().create(command);
  if (!id) return tl::unexpected(id.error());
  if (command.unfinished) return {};
  command.output<Out>().set(Out::umem_id, id->value());
  return {};
}

CommandResult destroy_umem(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_umem_in;
  return driver.user_memories().destroy(UmemId(command.input<In>().get(In::umem_id)), command);
}

}  // namespace softhca::connectx

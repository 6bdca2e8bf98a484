// ACCESS_REGISTER (PRM 12.4.1): the registers themselves are in port_registers.cc.

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/port/port_registers.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {

CommandResult access_register(DriverState& driver, const Command& command) {
  using In = spec::connectx::access_register_in;
  using Out = spec::connectx::access_register_out;
  using Direction = spec::connectx::access_register_op_mod;
  const auto direction = static_cast<Direction>(command.op_mod);
  if (direction != Direction::WRITE && direction != Direction::READ) {
    return refuse(Status::BAD_OP, "PRM 12.4.1", "op_mod is neither read nor write");
  }
  const auto id =
      static_cast<spec::connectx::register_id>(command.input<In>().get(In::register_id));
  return driver.port_registers().access(
      id, direction == Direction::WRITE, command.in_tail(In::register_data_offset),
      command.out.subspan(Out::register_data_offset), driver.now());
}

}  // namespace softhca::connectx

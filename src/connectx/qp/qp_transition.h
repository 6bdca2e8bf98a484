// A table of the modify commands of a QP (mlx5 driver interface 7.4): the fields that each takes
// from its context. spec/connectx/qp_commands.h has the states before and after.
//
// InfiniBand defines for each service which attributes a transition requires or accepts
// (spec/infiniband/qp_states.h). Required attributes are taken from the command's context without a
// bit in opt_param_mask. All other fields keep their values, whatever the command's context has in
// them.
#pragma once

#include <cstdint>
#include <string_view>

#include "rdma/types.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/qp_commands.h"
#include "util/field.h"

namespace softhca::connectx {

/// A set of parts of a QP context, one bit each. The low bits are those of opt_param_mask
/// (qp_opt_param_bit).
using QpParts = std::uint64_t;

constexpr QpParts part(spec::connectx::qp_opt_param_bit bit) {
  return QpParts{1} << static_cast<unsigned>(bit);
}
// Parts without a bit in opt_param_mask.
/// PD, CQs, doorbell record, reserved LKey.
inline constexpr QpParts kPartQueues = QpParts{1} << 32;
inline constexpr QpParts kPartMtu = QpParts{1} << 33;  ///< path MTU and longest message
inline constexpr QpParts kPartRemoteQpn = QpParts{1} << 34;
inline constexpr QpParts kPartReceivePsn = QpParts{1} << 35;
inline constexpr QpParts kPartSendPsn = QpParts{1} << 36;
inline constexpr QpParts kPartUdpSport = QpParts{1} << 37;

struct QpModify {
  spec::connectx::command_opcode opcode;
  // Parts beyond the InfiniBand attributes:
  QpParts always = 0;
  QpParts optional = 0;          ///< taken if their bit in opt_param_mask is set
  std::string_view wrong_state;  ///< reason why the command is refused in another state

  rdma::QpState from() const { return states().from; }
  rdma::QpState to() const { return states().to; }

 private:
  const spec::infiniband::QpCommand<spec::connectx::command_opcode>& states() const {
    return qp_command(spec::connectx::kQpCommands, opcode);
  }
};

/// The entry of a command with a context. 2ERR_QP and 2RST_QP have no context and are allowed in
/// any state.
/// @pre `opcode` is in the table
const QpModify& find_qp_modify(spec::connectx::command_opcode opcode);

/// The parts that the command takes for a QP of this type. `mask`: its opt_param_mask.
QpParts parts_taken(const QpModify& command, rdma::QpType type, std::uint32_t mask);

/// Copies `parts` of `from` to `to`.
void merge_qp_context(util::MutableView<spec::connectx::qpc> to,
                      util::View<spec::connectx::qpc> from, QpParts parts);

}  // namespace softhca::connectx

// The commands for the state transitions of a QP (mlx5 driver interface 7.4). RESET and ERR are
// reached from every state, by 2RST_QP and 2ERR_QP.
#pragma once

#include "spec/connectx/opcodes.h"
#include "spec/infiniband/qp_command.h"

namespace softhca::spec::connectx {

inline constexpr infiniband::QpCommand<command_opcode> kQpCommands[] = {
    {command_opcode::RST2INIT_QP, infiniband::QpState::kReset, infiniband::QpState::kInit},
    {command_opcode::INIT2INIT_QP, infiniband::QpState::kInit, infiniband::QpState::kInit},
    {command_opcode::INIT2RTR_QP, infiniband::QpState::kInit, infiniband::QpState::kRtr},
    {command_opcode::RTR2RTS_QP, infiniband::QpState::kRtr, infiniband::QpState::kRts},
    {command_opcode::RTS2RTS_QP, infiniband::QpState::kRts, infiniband::QpState::kRts},
    {command_opcode::SQERR2RTS_QP, infiniband::QpState::kSqError, infiniband::QpState::kRts},
    {command_opcode::SQD_RTS_QP, infiniband::QpState::kSqDrain, infiniband::QpState::kRts},
    // Sent by early mlx5 drivers only.
    {command_opcode::RTS2SQD_QP, infiniband::QpState::kRts, infiniband::QpState::kSqDrain, true},
    {command_opcode::SQD2RTS_QP, infiniband::QpState::kSqDrain, infiniband::QpState::kRts, true},
    {command_opcode::SQD2SQD_QP, infiniband::QpState::kSqDrain, infiniband::QpState::kSqDrain,
     true},
};

}  // namespace softhca::spec::connectx

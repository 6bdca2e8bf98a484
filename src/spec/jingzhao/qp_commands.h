// The commands for the state transitions of a QP (JingZhao 3.2.6.1, table A1-2). From every state
// ERR2RST_QPEE leads to RST, and 2ERR_QPEE to ERR.
#pragma once

#include "spec/infiniband/qp_command.h"
#include "spec/jingzhao/command.h"

namespace softhca::spec::jingzhao {

inline constexpr infiniband::QpCommand<command_opcode> kQpCommands[] = {
    {command_opcode::RST2INIT_QPEE, infiniband::QpState::kReset, infiniband::QpState::kInit},
    {command_opcode::INIT2INIT_QPEE, infiniband::QpState::kInit, infiniband::QpState::kInit},
    {command_opcode::INIT2RTR_QPEE, infiniband::QpState::kInit, infiniband::QpState::kRtr},
    {command_opcode::RTR2RTS_QPEE, infiniband::QpState::kRtr, infiniband::QpState::kRts},
    {command_opcode::RTS2RTS_QPEE, infiniband::QpState::kRts, infiniband::QpState::kRts},
    {command_opcode::SQERR2RTS_QPEE, infiniband::QpState::kSqError, infiniband::QpState::kRts},
    {command_opcode::RTS2SQD_QPEE, infiniband::QpState::kRts, infiniband::QpState::kSqDrain},
    {command_opcode::SQD2SQD_QPEE, infiniband::QpState::kSqDrain, infiniband::QpState::kSqDrain},
    {command_opcode::SQD2RTS_QPEE, infiniband::QpState::kSqDrain, infiniband::QpState::kRts},
};

}  // namespace softhca::spec::jingzhao

// What several commands of QPs check in the same way.
#pragma once

#include "connectx/command/command.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

/// The numbers and limits of a QP context: PD, CQs of the queues that exist, SRQ, port, depth of
/// READs (mlx5 driver interface 7.4).
CommandResult check_qp_references(Device& device, util::View<spec::connectx::qpc> context);

}  // namespace softhca::connectx

// What several commands of QPs and SRQs check and write in the same way.
#pragma once

#include <cstddef>
#include <span>

#include "connectx/command/command.h"
#include "pcie/dma_space.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

/// The numbers and limits of a QP context: PD, CQs of the queues that exist, SRQ, port, depth of
/// READs (mlx5 driver interface 7.4).
CommandResult check_qp_references(Device& device, util::View<spec::connectx::qpc> context);

/// The page list of a query command, as far as the output is long enough.
void write_page_list(const Command& command, std::size_t offset, std::span<const pcie::Iova> pages);

}  // namespace softhca::connectx

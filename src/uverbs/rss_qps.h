// RSS QPs, which spread frames over an RWQ indirection table (kernel interface 4.12).
#pragma once

#include "uverbs/open_file.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// Serves a CREATE_QP that names a table: frames go to its queues, and the QP has none itself.
Errno create_scaling_qp(const OpenFile& file, Request& request);

}  // namespace softhca::uverbs

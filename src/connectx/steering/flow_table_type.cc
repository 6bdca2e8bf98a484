#include "connectx/steering/flow_table_type.h"

#include "connectx/steering/flow_table.h"

namespace softhca::connectx {

CommandResult check_flow_table_type(spec::connectx::flow_table_type type, bool other_vport) {
  if (!FlowSteering::has_type(type)) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.1",
                  "a table type other than NIC receive, NIC transmit and sniffers");
  }
  if (other_vport) {
    return refuse(Status::BAD_PARAM, "PRM 12.14", "other_vport, but there is one vport only");
  }
  return {};
}

}  // namespace softhca::connectx

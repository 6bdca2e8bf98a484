// Checks the input fields that all flow table commands have: type and vport of the table.
#pragma once

#include "connectx/command/command.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::connectx {

/// Accepts the types that the device advertises (PRM Table 148), on the device's own vport.
CommandResult check_flow_table_type(spec::connectx::flow_table_type type, bool other_vport);

template <class In>
CommandResult check_flow_table_type(util::View<In> in) {
  bool other_vport = false;
  if constexpr (requires { In::other_vport; }) other_vport = in.get(In::other_vport) != 0;
  return check_flow_table_type(spec::connectx::flow_table_type(in.get(In::table_type)),
                               other_vport);
}

}  // namespace softhca::connectx

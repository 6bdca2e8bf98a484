// A document's commands for state transitions of a queue pair, as a table. The transitions and
// their attributes are InfiniBand's: qp_states.h.
#pragma once

#include <algorithm>
#include <iterator>

#include "spec/infiniband/qp_states.h"

namespace softhca::spec::infiniband {

template <class Opcode>
struct QpCommand {
  Opcode opcode;
  QpState from;
  QpState to;
  bool is_early = false;  ///< today's drivers send another command, or none
};

/// Null if no command makes this transition. `or_early`: also considers commands of early drivers.
template <class Opcode, std::size_t Size>
constexpr const QpCommand<Opcode>* find_qp_command(const QpCommand<Opcode> (&table)[Size],
                                                   QpState from, QpState to,
                                                   bool or_early = false) {
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const auto& row) {
    return row.from == from && row.to == to && (or_early || !row.is_early);
  });
  return found == std::end(table) ? nullptr : found;
}

/// @pre the table contains the opcode
template <class Opcode, std::size_t Size>
constexpr const QpCommand<Opcode>& qp_command(const QpCommand<Opcode> (&table)[Size],
                                              Opcode opcode) {
  return *std::find_if(std::begin(table), std::end(table),
                       [&](const auto& row) { return row.opcode == opcode; });
}

}  // namespace softhca::spec::infiniband

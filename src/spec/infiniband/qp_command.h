// The commands by which a document takes a queue pair from one state to another, as a table of
// that document. Which transitions there are, and what they take, is InfiniBand's: qp_states.h.
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
  bool is_early = false;  ///< drivers of today send another one, or none
};

/// Null if no command leads from one to the other. `or_early`: commands of early drivers count,
/// too.
template <class Opcode, std::size_t Size>
constexpr const QpCommand<Opcode>* find_qp_command(const QpCommand<Opcode> (&table)[Size],
                                                   QpState from, QpState to,
                                                   bool or_early = false) {
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const auto& row) {
    return row.from == from && row.to == to && (or_early || !row.is_early);
  });
  return found == std::end(table) ? nullptr : found;
}

/// @pre the table has the opcode
template <class Opcode, std::size_t Size>
constexpr const QpCommand<Opcode>& qp_command(const QpCommand<Opcode> (&table)[Size],
                                              Opcode opcode) {
  return *std::find_if(std::begin(table), std::end(table),
                       [&](const auto& row) { return row.opcode == opcode; });
}

}  // namespace softhca::spec::infiniband

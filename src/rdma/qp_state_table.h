// Which transitions MODIFY QP may make (IBTA 11.2.4.2, 10.3.1), by type, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "rdma/types.h"

namespace softhca::rdma {

/// A set of QP types, one bit each.
using QpTypes = std::uint8_t;
constexpr QpTypes only(QpType type) {
  return static_cast<QpTypes>(1u << static_cast<unsigned>(type));
}
inline constexpr QpTypes kAllTypes = 0xF;

struct QpTransition {
  QpState from;
  QpState to;
  QpTypes types;
};

/// Every transition that is allowed, by ascending `from` and `to`.
std::span<const QpTransition> qp_transition_table();
bool transition_allowed(QpType type, QpState from, QpState to);

/// What a state allows (IBTA 10.3.1).
struct QpStateRules {
  QpState state;
  bool sends;     ///< starts send requests
  bool finishes;  ///< sends again and takes answers for what was begun
  bool receives;  ///< takes requests and answers them
  bool flushes_send;
  bool flushes_receive;
};
const QpStateRules& state_rules(QpState state);

/// The table as text, one row for each state.
std::string print_qp_transitions(QpType type);

}  // namespace softhca::rdma

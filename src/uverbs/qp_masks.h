// Which attributes a QP takes on the way from one state to another, as Linux decides it.
#pragma once

#include <cstdint>

#include "spec/infiniband/qp_states.h"
#include "uverbs/objects.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// Of the verbs' number. @pre `state` is a state
softhca::spec::infiniband::QpState infiniband_state(std::uint8_t state);
/// Drops the bits that an XRC QP of this type has no use for (modify_qp_mask of Linux'
/// uverbs_cmd.c).
std::uint32_t relevant_mask(const QueuePair& qp, std::uint32_t mask);
/// There is such a transition, all that it requires is given, and nothing that it does not take
/// (ib_modify_qp_is_ok; modify_dci_qp_is_ok of mlx5).
/// @pre `from`, `to` are states
bool takes_mask(const QueuePair& qp, std::uint8_t from, std::uint8_t to, std::uint32_t mask);

}  // namespace softhca::uverbs

// The attributes that Linux requires and allows for each QP state transition.
#pragma once

#include <cstdint>

#include "spec/infiniband/qp_states.h"
#include "uverbs/objects.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// Converts a verbs state number. @pre `state` is a state
softhca::spec::infiniband::QpState infiniband_state(std::uint8_t state);
/// Drops the bits that do not apply to an XRC QP of this type (modify_qp_mask of Linux's
/// uverbs_cmd.c).
std::uint32_t relevant_mask(const QueuePair& qp, std::uint32_t mask);
/// Whether the transition exists, and `mask` has all required attributes and no forbidden ones
/// (ib_modify_qp_is_ok; modify_dci_qp_is_ok of mlx5).
/// @pre `from`, `to` are states
bool takes_mask(const QueuePair& qp, std::uint8_t from, std::uint8_t to, std::uint32_t mask);

}  // namespace softhca::uverbs

// The attributes that Linux requires and allows for each QP state transition.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/infiniband/qp_states.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// The attributes of one transition besides the state, in bits of ib_qp_attr_mask.
struct QpMasks {
  std::uint32_t required = 0, optional = 0;
};

/// Converts a verbs state number. @pre `state` is a state
softhca::spec::infiniband::QpState infiniband_state(std::uint8_t state);
// The masks of a transition; nothing: there is no such transition. @pre `from`, `to` are states
std::optional<QpMasks> infiniband_masks(softhca::spec::infiniband::QpType type, std::uint8_t from,
                                        std::uint8_t to);
std::optional<QpMasks> raw_packet_masks(std::uint8_t from, std::uint8_t to);
/// DC initiators: also the state is required (modify_dci_qp_is_ok of mlx5).
std::optional<QpMasks> dynamic_initiator_masks(std::uint8_t from, std::uint8_t to);
/// Whether `given` has all required attributes of a transition and no forbidden ones
/// (ib_modify_qp_is_ok).
bool takes_mask(const std::optional<QpMasks>& masks, std::uint8_t from, std::uint32_t given);

}  // namespace softhca::uverbs

#include "uverbs/qp_masks.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace softhca::uverbs {
namespace {

namespace infiniband = softhca::spec::infiniband;

/// Two kinds of QPs have rows in Linux that InfiniBand's table lacks or has differently.
struct Row {
  std::uint8_t from;
  std::uint8_t to;
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

constexpr Row kRawPacket[] = {
    {kQpReset, kQpReset},
    {kQpReset, kQpInit, kQpPort},
    {kQpInit, kQpReset},
    {kQpInit, kQpInit},
    {kQpInit, kQpRtr},
    {kQpInit, kQpError},
    {kQpRtr, kQpReset},
    {kQpRtr, kQpRts, 0, kQpRateLimit},
    {kQpRtr, kQpError},
    {kQpRts, kQpReset},
    {kQpRts, kQpRts, 0, kQpRateLimit},
    {kQpRts, kQpError},
    {kQpSqe, kQpReset},
    {kQpSqe, kQpError},
    {kQpError, kQpReset},
    {kQpError, kQpError},
};

/// DC initiators: each request carries its path.
constexpr Row kDynamicInitiator[] = {
    {kQpReset, kQpReset},
    {kQpReset, kQpInit, kQpPkey | kQpPort},
    {kQpInit, kQpReset},
    {kQpInit, kQpInit, 0, kQpPkey | kQpPort},
    {kQpInit, kQpRtr, kQpMtu, kQpPkey | kQpPath},
    {kQpInit, kQpError},
    {kQpRtr, kQpReset},
    {kQpRtr, kQpRts, kQpTimeout | kQpRetry | kQpRnrRetry | kQpMaxReads | kQpSqPsn, kQpMinRnr},
    {kQpRtr, kQpError},
    {kQpRts, kQpReset},
    {kQpRts, kQpRts, 0, kQpMinRnr},
    {kQpRts, kQpError},
    {kQpSqe, kQpReset},
    {kQpSqe, kQpError},
    {kQpError, kQpReset},
    {kQpError, kQpError},
};

std::optional<QpMasks> find(std::span<const Row> rows, std::uint8_t from, std::uint8_t to) {
  const auto at =
      std::ranges::find_if(rows, [&](const Row& row) { return row.from == from && row.to == to; });
  if (at == rows.end()) return std::nullopt;
  return QpMasks{at->required, at->optional};
}

/// The states that a caller may give as a QP's current one.
bool may_be_current(std::uint8_t state) {
  return state == kQpRtr || state == kQpRts || state == kQpSqd || state == kQpSqe;
}

}  // namespace

infiniband::QpState infiniband_state(std::uint8_t state) {
  using enum infiniband::QpState;
  static constexpr infiniband::QpState kStates[] = {kReset,   kInit,    kRtr,  kRts,
                                                    kSqDrain, kSqError, kError};
  return kStates[state];
}

std::optional<QpMasks> infiniband_masks(infiniband::QpType type, std::uint8_t from,
                                        std::uint8_t to) {
  const auto* row = infiniband::find_transition(type, infiniband_state(from), infiniband_state(to));
  if (row == nullptr) return std::nullopt;
  return QpMasks{row->required.bits(), row->optional.bits()};
}

std::optional<QpMasks> raw_packet_masks(std::uint8_t from, std::uint8_t to) {
  return find(kRawPacket, from, to);
}

std::optional<QpMasks> dynamic_initiator_masks(std::uint8_t from, std::uint8_t to) {
  auto masks = find(kDynamicInitiator, from, to);
  if (masks) masks->required |= kQpState;
  return masks;
}

bool takes_mask(const std::optional<QpMasks>& masks, std::uint8_t from, std::uint32_t given) {
  if (!masks) return false;
  if ((given & kQpCurrentState) != 0 && !may_be_current(from)) return false;
  return (given & masks->required) == masks->required &&
         (given & ~(masks->required | masks->optional | kQpState)) == 0;
}

}  // namespace softhca::uverbs

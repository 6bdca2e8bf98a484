#include "uverbs/qp_masks.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "spec/infiniband/qp_states.h"

namespace softhca::uverbs {
namespace {

namespace infiniband = softhca::spec::infiniband;
using softhca::spec::connectx::service_type;

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

/// DC initiators: each request carries its path. Every row requires the state attribute.
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

std::optional<Row> find(std::span<const Row> rows, std::uint8_t from, std::uint8_t to) {
  const auto at =
      std::ranges::find_if(rows, [&](const Row& row) { return row.from == from && row.to == to; });
  return at == rows.end() ? std::nullopt : std::optional(*at);
}

infiniband::QpType type_of(const QueuePair& qp) {
  switch (qp.type) {
    case IB_UVERBS_QPT_UC:
      return infiniband::QpType::kUc;
    case IB_UVERBS_QPT_UD:
      return infiniband::QpType::kUd;
    case IB_UVERBS_QPT_XRC_INI:
      return infiniband::QpType::kXrcInitiator;
    case IB_UVERBS_QPT_XRC_TGT:
      return infiniband::QpType::kXrcTarget;
    default:
      return infiniband::QpType::kRc;
  }
}

std::optional<Row> find(const QueuePair& qp, std::uint8_t from, std::uint8_t to) {
  if (qp.raw != nullptr) return find(kRawPacket, from, to);
  if (qp.service == service_type::DCI) return find(kDynamicInitiator, from, to);
  const auto* row =
      infiniband::find_transition(type_of(qp), infiniband_state(from), infiniband_state(to));
  if (row == nullptr) return std::nullopt;
  return Row{from, to, row->required.bits(), row->optional.bits()};
}

/// The states that a caller may give as a QP's current one.
bool may_be_current(std::uint8_t state) {
  return state == kQpRtr || state == kQpRts || state == kQpSqd || state == kQpSqe;
}

}  // namespace

infiniband::QpState infiniband_state(std::uint8_t state) {
  using enum infiniband::QpState;
  static constexpr infiniband::QpState kStates[] = {infiniband::QpState::kReset,
                                                    infiniband::QpState::kInit,
                                                    infiniband::QpState::kRtr,
                                                    infiniband::QpState::kRts,
                                                    kSqDrain,
                                                    kSqError,
                                                    infiniband::QpState::kError};
  return kStates[state];
}

std::uint32_t relevant_mask(const QueuePair& qp, std::uint32_t mask) {
  switch (qp.type) {
    case IB_UVERBS_QPT_XRC_INI:
      return mask & ~std::uint32_t{kQpMaxDestReads | kQpMinRnr};
    case IB_UVERBS_QPT_XRC_TGT:
      return mask & ~std::uint32_t{kQpMaxReads | kQpRetry | kQpRnrRetry};
    default:
      return mask;
  }
}

bool takes_mask(const QueuePair& qp, std::uint8_t from, std::uint8_t to, std::uint32_t mask) {
  const auto row = find(qp, from, to);
  if (!row) return false;
  if ((mask & kQpCurrentState) != 0 && !may_be_current(from)) return false;
  if (qp.service == service_type::DCI && (mask & kQpState) == 0) return false;
  return (mask & row->required) == row->required &&
         (mask & ~(row->required | row->optional | kQpState)) == 0;
}

}  // namespace softhca::uverbs

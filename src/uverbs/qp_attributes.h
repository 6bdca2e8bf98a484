// QP attributes that a program sets, with the values of ib_verbs.h.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

#include "spec/infiniband/qp_states.h"
#include "uverbs/device.h"

namespace softhca::uverbs {

using softhca::spec::infiniband::QpAttribute;

/// The bit of an attribute in ib_qp_attr_mask.
constexpr std::uint32_t mask_of(QpAttribute attribute) {
  return softhca::spec::infiniband::QpAttributeSet{attribute}.bits();
}

/// ib_qp_attr_mask.
enum QpMask : std::uint32_t {
  kQpState = mask_of(QpAttribute::kState),
  kQpCurrentState = mask_of(QpAttribute::kCurrentState),
  kQpAccess = mask_of(QpAttribute::kAccessFlags),
  kQpPkey = mask_of(QpAttribute::kPkeyIndex),
  kQpPort = mask_of(QpAttribute::kPort),
  kQpQkey = mask_of(QpAttribute::kQkey),
  kQpPath = mask_of(QpAttribute::kAddressVector),
  kQpMtu = mask_of(QpAttribute::kPathMtu),
  kQpTimeout = mask_of(QpAttribute::kTimeout),
  kQpRetry = mask_of(QpAttribute::kRetryCount),
  kQpRnrRetry = mask_of(QpAttribute::kRnrRetry),
  kQpRqPsn = mask_of(QpAttribute::kRqPsn),
  kQpMaxReads = mask_of(QpAttribute::kMaxRdAtomic),
  kQpAlternatePath = mask_of(QpAttribute::kAlternatePath),
  kQpMinRnr = mask_of(QpAttribute::kMinRnrTimer),
  kQpSqPsn = mask_of(QpAttribute::kSqPsn),
  kQpMaxDestReads = mask_of(QpAttribute::kMaxDestRdAtomic),
  kQpMigration = mask_of(QpAttribute::kPathMigrationState),
  kQpDestQpn = mask_of(QpAttribute::kDestinationQpn),
  /// IB_QP_ATTR_STANDARD_BITS.
  kQpStandard = softhca::spec::infiniband::QpAttributeSet::all().bits(),
  kQpRateLimit = 1u << 25,
};
/// ib_qp_state.
enum QpState : std::uint8_t { kQpReset, kQpInit, kQpRtr, kQpRts, kQpSqd, kQpSqe, kQpError };
/// ib_access_flags.
enum QpAccess : std::uint32_t { kQpRemoteWrite = 2, kQpRemoteRead = 4, kQpRemoteAtomic = 8 };

/// The attributes that MODIFY_QP carries.
using QpAttributes = ib_uverbs_modify_qp;

/// The remote access of a context in the device, as ib_access_flags.
template <class Layout>
std::uint8_t access_of(const util::View<Layout>& context) {
  const auto flag = [&](auto field, unsigned bit) { return context.get(field) != 0 ? bit : 0u; };
  return static_cast<std::uint8_t>(flag(Layout::rwe, kQpRemoteWrite) |
                                   flag(Layout::rre, kQpRemoteRead) |
                                   flag(Layout::rae, kQpRemoteAtomic));
}

/// The QP state that the kernel keeps; the device holds all else.
struct QpCondition {
  std::uint8_t state = kQpReset;  ///< may lag behind the device
  std::uint8_t port = 0;          ///< 0: not set
  std::uint32_t access = 0;       ///< as requested; reads need a responder depth
  std::uint8_t responder_depth = 0;
  GidUse source = {};  ///< source GID of its path
};

}  // namespace softhca::uverbs

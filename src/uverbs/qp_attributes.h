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

/// ib_uverbs_modify_qp without the driver's part.
struct QpAttributes {
  ib_uverbs_qp_dest dest;
  ib_uverbs_qp_dest alt_dest;
  std::uint32_t qp_handle;
  std::uint32_t attr_mask;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  std::uint32_t qp_access_flags;
  std::uint16_t pkey_index;
  std::uint16_t alt_pkey_index;
  std::uint8_t qp_state;
  std::uint8_t cur_qp_state;
  std::uint8_t path_mtu;
  std::uint8_t path_mig_state;
  std::uint8_t en_sqd_async_notify;
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t alt_port_num;
  std::uint8_t alt_timeout;
  std::uint8_t reserved[2];
};
static_assert(sizeof(QpAttributes) == sizeof(ib_uverbs_modify_qp));

/// The QP state that the kernel keeps; the device holds all else.
struct QpCondition {
  std::uint8_t state = kQpReset;  ///< may lag behind the device
  std::uint8_t port = 0;          ///< 0: not set
  std::uint32_t access = 0;       ///< as requested; reads need a responder depth
  std::uint8_t responder_depth = 0;
  GidUse source = {};  ///< source GID of its path
};

}  // namespace softhca::uverbs

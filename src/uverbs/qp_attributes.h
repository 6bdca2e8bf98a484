// What a program says of a QP to change it.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

namespace softhca::uverbs {

/// ib_uverbs_modify_qp without what a driver may add.
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

/// As last set; the state as far as we know.
struct QpCondition {
  QpAttributes attributes{};
  std::uint8_t state = 0;
};

}  // namespace softhca::uverbs

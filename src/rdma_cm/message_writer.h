// Builds messages to other communication managers (IBTA 12.6, Annex A11; kernel interface 8.3).
// Nothing is sent here.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <span>

#include "rdma_cm/identifier.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {

/// The sender of a request.
struct Requester {
  driver::Gid source, destination;  ///< the addresses that the peer sees
  std::uint64_t node_guid;
};

/// `ece`: vendor-specific options of a connection (rdma_set_local_ece(3)).
Mad make_req(const Identifier& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece,
             const Requester& requester);
Mad make_mra(const Identifier& id);
Mad make_rep(const Identifier& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece,
             std::uint64_t node_guid);
Mad make_rtu(const Identifier& id);
Mad make_rej(const Identifier& id, std::uint16_t reason, std::span<const std::byte> private_data,
             std::uint64_t node_guid);
Mad make_dreq(const Identifier& id);
Mad make_drep(const Identifier& id);
/// Answers a DREQ for a connection that does not exist, or no longer.
Mad make_drep_to(const Mad& dreq);
Mad make_sidr_req(const Identifier& id, const rdma_ucm_conn_param& param,
                  const Requester& requester);
Mad make_sidr_rep(const Identifier& id, std::uint8_t status, std::uint32_t qkey,
                  std::span<const std::byte> private_data);

}  // namespace softhca::rdma_cm

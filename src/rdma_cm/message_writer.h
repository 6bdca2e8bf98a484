// Builds messages to other communication managers (IBTA 12.6, Annex A11; kernel interface 8.3).
// Nothing is sent here.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <span>

#include "rdma_cm/connection.h"
#include "rdma_cm/message.h"

namespace softhca::rdma_cm {

/// The sender of a request.
struct Requester {
  driver::Gid source, destination;  ///< the addresses that the peer sees
  std::uint16_t source_port;
  std::uint64_t node_guid;
};

/// `ece`: vendor-specific options of a connection (rdma_set_local_ece(3)).
Mad make_req(const Connection& connection, const rdma_ucm_conn_param& param,
             const rdma_ucm_ece& ece, const Requester& requester);
Mad make_mra(const Connection& connection);
Mad make_rep(const Connection& connection, const rdma_ucm_conn_param& param,
             const rdma_ucm_ece& ece, std::uint64_t node_guid);
Mad make_rtu(const Connection& connection);
Mad make_rej(const Connection& connection, std::uint16_t reason,
             std::span<const std::byte> private_data, std::uint64_t node_guid);
Mad make_dreq(const Connection& connection);
Mad make_drep(const Connection& connection);
/// Answers a DREQ for a connection that does not exist, or no longer.
Mad make_drep_to(const Mad& dreq);
Mad make_sidr_req(const Connection& connection, const rdma_ucm_conn_param& param,
                  const Requester& requester);
Mad make_sidr_rep(const Connection& connection, std::uint8_t status, std::uint32_t qkey,
                  std::span<const std::byte> private_data);

}  // namespace softhca::rdma_cm

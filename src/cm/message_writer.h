// Builds messages to other communication managers (IBTA 12.6; kernel interface 8.3).
// Nothing is sent here.
#pragma once

#include <cstdint>
#include <span>

#include "cm/connection.h"
#include "cm/message.h"
#include "cm/offer.h"

namespace softhca::cm {

Mad make_req(const Connection& connection, const Offer& offer, std::uint64_t node_guid);
Mad make_mra(const Connection& connection);
Mad make_rep(const Connection& connection, const Offer& offer, std::uint64_t node_guid);
Mad make_rtu(const Connection& connection);
Mad make_rej(const Connection& connection, std::uint16_t reason,
             std::span<const std::byte> private_data, std::uint64_t node_guid);
Mad make_dreq(const Connection& connection);
Mad make_drep(const Connection& connection);
/// Answers a DREQ for a connection that does not exist, or no longer.
Mad make_drep_to(const Mad& dreq);
Mad make_sidr_req(const Connection& connection, std::span<const std::byte> private_data);
Mad make_sidr_rep(const Connection& connection, std::uint8_t status, std::uint32_t qkey,
                  std::span<const std::byte> private_data);

}  // namespace softhca::cm

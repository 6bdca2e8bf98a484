// Reads the messages of other communication managers (IBTA 12.6). Any host may send
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cm/connection.h"
#include "cm/message.h"
#include "cm/offer.h"
#include "cm/transitions.h"

namespace softhca::cm {

/// Nothing: the datagram is not a communication manager's.
std::optional<cm_attribute> attribute_in(const Mad& mad);
/// Nothing: the message is not about a connection, or begins one.
std::optional<Input> input_in(const Mad& mad, cm_attribute attribute);

/// A REQ or a SIDR_REQ.
class RequestView {
 public:
  /// `mad` must outlive this.
  RequestView(const Mad& mad, bool datagram) : mad_(mad), datagram_(datagram) {}

  bool is_datagram() const { return datagram_; }
  /// The sender's number for its request.
  std::uint32_t number() const;
  std::uint64_t service() const;
  std::span<const std::byte> private_data() const;
  /// The type of the QP that answers, an ib_uverbs_qp_type (cm_req_get_qp_type of Linux). 0: the
  /// request names no known type.
  std::uint8_t qp_type() const;

 private:
  const Mad& mad_;
  const bool datagram_;
};

/// Each copies a message into its connection, and returns what the peer offers.
Offer read_req(const Mad& mad, Connection& connection);
Offer read_rep(const Mad& mad, Connection& connection);
/// @pre the SIDR_REP names a QP
void read_sidr_rep(const Mad& mad, Connection& connection);

}  // namespace softhca::cm

#include "cm/message_writer.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>

#include "util/bits.h"

namespace softhca::cm {
namespace {

/// CMA_CM_MRA_SETTING of Linux, 68 s.
constexpr std::uint8_t kServiceTimeout = 24;

/// @pre it fits
void copy_data(std::span<std::byte> to, std::span<const std::byte> data) {
  std::ranges::copy(data.first(std::min(data.size(), to.size())), to.begin());
}

/// Sets the type of the sender's QP. An XRC initiator has neither a responder nor a receive queue
/// (cm_format_req of Linux).
void set_transport(util::MutableView<spec::cm_req> req, const Connection& connection,
                   const Offer& offer) {
  using Req = spec::cm_req;
  if (connection.qp_type == IB_UVERBS_QPT_XRC_INI) {
    req.set(Req::transport, kTransportExtended);
    req.set(Req::extended_transport, kExtendedXrc);
    return;
  }
  req.set(Req::transport, connection.qp_type == IB_UVERBS_QPT_UC ? kTransportUc : 0);
  req.set(Req::responder_resources, offer.responder_resources);
  req.set(Req::retry_count, connection.qp.retry_count);
  req.set(Req::rnr_retry, connection.qp.rnr_retry_count);
  req.set(Req::srq, offer.srq);
}

/// The code for the message that a REJ answers (IBTA 12.6.7.3): REQ, REP or another.
std::uint32_t rejected_in(State state) {
  if (state == State::kReqRcvd) return 0;
  return state == State::kRepRcvd ? 1 : 2;
}

}  // namespace

Mad make_req(const Connection& connection, const Offer& offer, std::uint64_t node_guid) {
  using Req = spec::cm_req;
  Message<Req> message(cm_attribute::REQ, connection.exchange.transaction);
  message.set_modifier(offer.vendor_options.attribute);
  const auto req = message.body();
  req.set(Req::local_comm_id, connection.exchange.local_comm_id);
  req.set(Req::vendor_id, offer.vendor_options.vendor_id & Req::vendor_id.kMax);
  req.set(Req::service_id, connection.exchange.service);
  req.set(Req::local_ca_guid, node_guid);
  req.set(Req::local_qpn, connection.qp.local_qpn & Req::local_qpn.kMax);
  req.set(Req::initiator_depth, offer.initiator_depth);
  req.set(Req::remote_response_timeout, kResponseTimeout);
  set_transport(req, connection, offer);
  req.set(Req::flow_control, offer.flow_control & Req::flow_control.kMax);
  req.set(Req::starting_psn, connection.qp.local_psn);
  req.set(Req::local_response_timeout, kResponseTimeout);
  req.set(Req::pkey, kDefaultPkey);
  req.set(Req::path_mtu, connection.path.mtu);
  req.set(Req::max_cm_retries, kRepeats);
  req.set(Req::primary_local_lid, 0xffff);
  req.set(Req::primary_remote_lid, 0xffff);
  std::ranges::copy(connection.local.gid.bytes, req.sub(Req::primary_local_gid).begin());
  std::ranges::copy(connection.peer->bytes, req.sub(Req::primary_remote_gid).begin());
  req.set(Req::primary_flow_label, connection.path.flow_label);
  req.set(Req::primary_rate, kRate100Gb);
  req.set(Req::primary_traffic_class, connection.path.traffic_class);
  req.set(Req::primary_hop_limit, kHopLimit);
  req.set(Req::primary_ack_timeout, ack_timeout_of(kAckDelay, connection.path.ack_timeout - 1u));
  copy_data(req.sub(Req::private_data), offer.private_data);
  return message.mad();
}

Mad make_mra(const Connection& connection) {
  using Mra = spec::cm_mra;
  Message<Mra> message(cm_attribute::MRA, connection.exchange.transaction);
  const auto mra = message.body();
  mra.set(Mra::local_comm_id, connection.exchange.local_comm_id);
  mra.set(Mra::remote_comm_id, connection.exchange.remote_comm_id);
  mra.set(Mra::service_timeout, kServiceTimeout);
  return message.mad();
}

Mad make_rep(const Connection& connection, const Offer& offer, std::uint64_t node_guid) {
  using Rep = spec::cm_rep;
  Message<Rep> message(cm_attribute::REP, connection.exchange.transaction);
  message.set_modifier(offer.vendor_options.attribute);
  const auto rep = message.body();
  using Parts = spec::ece_vendor_id;
  rep.set(Rep::vendor_id_high, util::part_of(offer.vendor_options.vendor_id, Parts::high));
  rep.set(Rep::vendor_id_middle, util::part_of(offer.vendor_options.vendor_id, Parts::middle));
  rep.set(Rep::vendor_id_low, util::part_of(offer.vendor_options.vendor_id, Parts::low));
  rep.set(Rep::local_comm_id, connection.exchange.local_comm_id);
  rep.set(Rep::remote_comm_id, connection.exchange.remote_comm_id);
  rep.set(Rep::starting_psn, connection.qp.local_psn);
  rep.set(Rep::responder_resources, connection.qp.responder_resources);
  rep.set(Rep::target_ack_delay, kAckDelay);
  rep.set(Rep::rnr_retry, std::min<std::uint32_t>(offer.rnr_retry_count, 7));  // of the peer's QP
  // An XRC target has no requester, and receives from SRQs alone.
  if (connection.qp_type == IB_UVERBS_QPT_XRC_TGT) {
    rep.set(Rep::local_ee_context, connection.qp.local_qpn & Rep::local_ee_context.kMax);
    rep.set(Rep::srq, 1);
  } else {
    rep.set(Rep::local_qpn, connection.qp.local_qpn & Rep::local_qpn.kMax);
    rep.set(Rep::initiator_depth, connection.qp.initiator_depth);
    rep.set(Rep::flow_control, offer.flow_control & Rep::flow_control.kMax);
    rep.set(Rep::srq, offer.srq);
  }
  util::store_be64(rep.sub(Rep::local_ca_guid).data(), node_guid);
  copy_data(rep.sub(Rep::private_data), offer.private_data);
  return message.mad();
}

Mad make_rtu(const Connection& connection) {
  using Rtu = spec::cm_rtu;
  Message<Rtu> message(cm_attribute::RTU, connection.exchange.transaction);
  message.body().set(Rtu::local_comm_id, connection.exchange.local_comm_id);
  message.body().set(Rtu::remote_comm_id, connection.exchange.remote_comm_id);
  return message.mad();
}

Mad make_rej(const Connection& connection, std::uint16_t reason,
             std::span<const std::byte> private_data, std::uint64_t node_guid) {
  using Rej = spec::cm_rej;
  Message<Rej> message(cm_attribute::REJ, connection.exchange.transaction);
  const auto rej = message.body();
  rej.set(Rej::local_comm_id, connection.exchange.local_comm_id);
  rej.set(Rej::remote_comm_id, connection.exchange.remote_comm_id);
  rej.set(Rej::message, rejected_in(connection.state));
  rej.set(Rej::reason, reason);
  if (reason == number_of(spec::cm_reject_reason::TIMEOUT)) {
    // The peer may not have received this side's number yet, so add the node GUID.
    constexpr std::uint32_t kGuidBytes = 8;
    rej.set(Rej::info_length, kGuidBytes);
    util::store_be64(rej.sub(Rej::info).data(), node_guid);
  }
  copy_data(rej.sub(Rej::private_data), private_data);
  return message.mad();
}

Mad make_dreq(const Connection& connection) {
  using Dreq = spec::cm_dreq;
  Message<Dreq> message(cm_attribute::DREQ, connection.exchange.local_comm_id);
  message.body().set(Dreq::local_comm_id, connection.exchange.local_comm_id);
  message.body().set(Dreq::remote_comm_id, connection.exchange.remote_comm_id);
  message.body().set(Dreq::remote_qpn, connection.qp.remote_qpn & Dreq::remote_qpn.kMax);
  return message.mad();
}

Mad make_drep(const Connection& connection) {
  Message<spec::cm_rtu> message(cm_attribute::DREP, connection.exchange.transaction);
  message.body().set(spec::cm_rtu::local_comm_id, connection.exchange.local_comm_id);
  message.body().set(spec::cm_rtu::remote_comm_id, connection.exchange.remote_comm_id);
  return message.mad();
}

Mad make_drep_to(const Mad& mad) {
  const auto dreq = body_of<spec::cm_dreq>(mad);
  Message<spec::cm_rtu> drep(cm_attribute::DREP, transaction_of(mad));
  drep.body().set(spec::cm_rtu::local_comm_id, dreq.get(spec::cm_dreq::remote_comm_id));
  drep.body().set(spec::cm_rtu::remote_comm_id, dreq.get(spec::cm_dreq::local_comm_id));
  return drep.mad();
}

Mad make_sidr_req(const Connection& connection, std::span<const std::byte> private_data) {
  using Req = spec::cm_sidr_req;
  Message<Req> message(cm_attribute::SIDR_REQ, connection.exchange.transaction);
  const auto req = message.body();
  req.set(Req::request_id, connection.exchange.local_comm_id);
  req.set(Req::pkey, kDefaultPkey);
  req.set(Req::service_id, connection.exchange.service);
  copy_data(req.sub(Req::private_data), private_data);
  return message.mad();
}

Mad make_sidr_rep(const Connection& connection, std::uint8_t status, std::uint32_t qkey,
                  std::span<const std::byte> data) {
  using Rep = spec::cm_sidr_rep;
  Message<Rep> message(cm_attribute::SIDR_REP, connection.exchange.transaction);
  const auto rep = message.body();
  rep.set(Rep::request_id, connection.exchange.remote_comm_id);
  rep.set(Rep::status, status);
  rep.set(Rep::qpn, connection.qp.local_qpn & Rep::qpn.kMax);
  util::store_be64(rep.sub(Rep::service_id).data(), connection.exchange.service);
  rep.set(Rep::qkey, qkey);
  copy_data(rep.sub(Rep::private_data), data);
  return message.mad();
}

}  // namespace softhca::cm

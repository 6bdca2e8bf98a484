#include "cm/message_reader.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>

#include "util/bits.h"

namespace softhca::cm {
namespace {

/// The message that an MRA answers.
constexpr std::uint32_t kOfReq = 0;

}  // namespace

std::optional<cm_attribute> attribute_in(const Mad& mad) {
  using Header = spec::mad_header;
  const util::View<Header> head(std::span<const std::byte>(mad).first(Header::kSize));
  if (head.get(Header::base_version) != 1 || head.get(Header::mgmt_class) != 7) return {};
  return static_cast<cm_attribute>(head.get(Header::attribute_id));
}

std::optional<Input> input_in(const Mad& mad, cm_attribute attribute) {
  using Mra = spec::cm_mra;
  switch (attribute) {
    case cm_attribute::REP:
      return Input::kRep;
    case cm_attribute::RTU:
      return Input::kRtu;
    case cm_attribute::REJ:
      return Input::kRej;
    case cm_attribute::DREQ:
      return Input::kDreq;
    case cm_attribute::DREP:
      return Input::kDrep;
    case cm_attribute::MRA:
      return body_of<Mra>(mad).get(Mra::message) == kOfReq ? Input::kMraOfReq : Input::kMraOfRep;
    default:
      return std::nullopt;
  }
}

std::uint32_t RequestView::number() const {
  return datagram_ ? body_of<spec::cm_sidr_req>(mad_).get(spec::cm_sidr_req::request_id)
                   : body_of<spec::cm_req>(mad_).get(spec::cm_req::local_comm_id);
}

std::uint64_t RequestView::service() const {
  return datagram_ ? body_of<spec::cm_sidr_req>(mad_).get(spec::cm_sidr_req::service_id)
                   : body_of<spec::cm_req>(mad_).get(spec::cm_req::service_id);
}

std::span<const std::byte> RequestView::private_data() const {
  return datagram_ ? std::span<const std::byte>(
                         body_of<spec::cm_sidr_req>(mad_).get(spec::cm_sidr_req::private_data))
                   : std::span<const std::byte>(
                         body_of<spec::cm_req>(mad_).get(spec::cm_req::private_data));
}

std::uint8_t RequestView::qp_type() const {
  using Req = spec::cm_req;
  if (datagram_) return IB_UVERBS_QPT_UD;
  const auto req = body_of<Req>(mad_);
  const auto transport = req.get(Req::transport);
  if (transport == 0) return IB_UVERBS_QPT_RC;
  if (transport == kTransportUc) return IB_UVERBS_QPT_UC;
  const bool is_xrc =
      transport == kTransportExtended && req.get(Req::extended_transport) == kExtendedXrc;
  if (is_xrc) return IB_UVERBS_QPT_XRC_TGT;
  return 0;
}

Offer read_req(const Mad& mad, Connection& connection) {
  using Req = spec::cm_req;
  constexpr std::uint32_t kTimeoutMax = 24;  // a minute
  const auto req = body_of<Req>(mad);
  connection.qp.remote_qpn = req.get(Req::local_qpn);
  connection.qp.remote_psn = req.get(Req::starting_psn);
  connection.qp.responder_resources = static_cast<std::uint8_t>(req.get(Req::initiator_depth));
  connection.qp.initiator_depth = static_cast<std::uint8_t>(req.get(Req::responder_resources));
  connection.qp.retry_count = static_cast<std::uint8_t>(req.get(Req::retry_count));
  connection.qp.rnr_retry_count = static_cast<std::uint8_t>(req.get(Req::rnr_retry));
  connection.exchange.repeats_max = static_cast<std::uint8_t>(req.get(Req::max_cm_retries));
  connection.exchange.response_timeout =
      timeout_of(std::min(req.get(Req::local_response_timeout), kTimeoutMax));
  const auto mtu = static_cast<std::uint8_t>(req.get(Req::path_mtu));
  if (mtu != 0 && mtu <= kMtu4096) connection.path.mtu = mtu;
  connection.path.flow_label = req.get(Req::primary_flow_label);
  connection.path.traffic_class = static_cast<std::uint8_t>(req.get(Req::primary_traffic_class));
  // Linux's cm converts the timeout to a packet lifetime, which cannot be negative, and back: 0
  // becomes 1. A QP with a timeout of 0 would wait for its acknowledgments forever.
  connection.path.ack_timeout =
      static_cast<std::uint8_t>(std::max<std::uint32_t>(req.get(Req::primary_ack_timeout), 1));
  return {.qpn = connection.qp.remote_qpn,
          .responder_resources = connection.qp.responder_resources,
          .initiator_depth = connection.qp.initiator_depth,
          .retry_count = connection.qp.retry_count,
          .rnr_retry_count = connection.qp.rnr_retry_count,
          .flow_control = static_cast<std::uint8_t>(req.get(Req::flow_control)),
          .srq = req.get(Req::srq) != 0,
          .vendor_options = {.vendor_id = req.get(Req::vendor_id), .attribute = modifier_of(mad)},
          .private_data = req.get(Req::private_data)};
}

Offer read_rep(const Mad& mad, Connection& connection) {
  using Rep = spec::cm_rep;
  const auto rep = body_of<Rep>(mad);
  connection.exchange.remote_comm_id = rep.get(Rep::local_comm_id);
  const bool is_xrc = connection.qp_type == IB_UVERBS_QPT_XRC_INI;
  connection.qp.remote_qpn = is_xrc ? rep.get(Rep::local_ee_context) : rep.get(Rep::local_qpn);
  connection.qp.remote_psn = rep.get(Rep::starting_psn);
  connection.qp.responder_resources = static_cast<std::uint8_t>(rep.get(Rep::initiator_depth));
  connection.qp.initiator_depth = static_cast<std::uint8_t>(rep.get(Rep::responder_resources));
  connection.qp.rnr_retry_count = static_cast<std::uint8_t>(rep.get(Rep::rnr_retry));
  connection.path.ack_timeout = ack_timeout_of(
      rep.get(Rep::target_ack_delay), std::max<unsigned>(connection.path.ack_timeout, 1) - 1);
  using Parts = spec::ece_vendor_id;
  const auto vendor_id = util::in_place(Parts::high, rep.get(Rep::vendor_id_high)) |
                         util::in_place(Parts::middle, rep.get(Rep::vendor_id_middle)) |
                         util::in_place(Parts::low, rep.get(Rep::vendor_id_low));
  return {.qpn = connection.qp.remote_qpn,
          .responder_resources = connection.qp.responder_resources,
          .initiator_depth = connection.qp.initiator_depth,
          .rnr_retry_count = connection.qp.rnr_retry_count,
          .flow_control = static_cast<std::uint8_t>(rep.get(Rep::flow_control)),
          .srq = rep.get(Rep::srq) != 0,
          .vendor_options = {.vendor_id = vendor_id, .attribute = modifier_of(mad)},
          .private_data = rep.get(Rep::private_data)};
}

void read_sidr_rep(const Mad& mad, Connection& connection) {
  using Rep = spec::cm_sidr_rep;
  const auto rep = body_of<Rep>(mad);
  connection.qp.remote_qpn = rep.get(Rep::qpn);
  connection.qp.qkey = rep.get(Rep::qkey);
}

}  // namespace softhca::cm
